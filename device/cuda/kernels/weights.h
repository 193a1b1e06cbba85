#include "forms.h"

// Weights are what a form multiplies with: up to three matrices of rows of width elements.
template <class Form> struct Weights {
    Form form;
    const Element *matrix[3];
    int width;
    __device__ int tiles() const { return form.tiles(); }
    __device__ const Element *row(int tile, int i) const {
        Place p = form.place(tile, i);
        return p.row < 0 ? 0 : (p.matrix == 0 ? matrix[0] : p.matrix == 1 ? matrix[1] : matrix[2]) + (i64)p.row * width;
    }
    __device__ void put(int tile, int g, int x, float low, float high) const { form.put(tile, g, x, low, high); }
};
