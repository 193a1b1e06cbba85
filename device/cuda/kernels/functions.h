// The functions of one number, as package op numbers them.
enum { ReLU = 1, GELU, GELUTanh, SiLU, Tanh, Sigmoid };

#define ROOT_2_OVER_PI 0.7978845608028654f
#define CUBIC 0.044715f

// The cumulative distribution of a normal variable, and exp(-x²/2). For 16-bit elements it is within 3.2e-5 of
// itself everywhere: a polynomial of 1/(1 + 0.535·|x|/√2) times the exponential, fitted to erfc.
__device__ __forceinline__ float normalCDF(float x, float &bell) {
    bell = power(-0.5f * x * x);
#if ELEMENT == 0
    return 0.5f * erfcf(-x * 0.7071067811865476f);
#else
    float t = over(1.0f, 1.0f + 0.535f * 0.7071067811865476f * fabsf(x));
    float p = t * (0.30096501f + t * (0.31576794f + t * (0.17760977f + t * (0.38647599f - t * 0.18085035f))));
    float tail = 0.5f * p * bell;
    return x < 0.0f ? tail : 1.0f - tail;
#endif
}
__device__ __forceinline__ float sigmoid(float x) { return over(1.0f, 1.0f + power(-fmaxf(x, -80.0f))); }

// both gives f(x) and f'(x).
template <int F> __device__ __forceinline__ void both(float x, float &value, float &slope) {
    if (F == ReLU) {
        value = fmaxf(x, 0.0f);
        slope = x > 0.0f ? 1.0f : 0.0f;
    } else if (F == GELU) {
        float bell, cdf = normalCDF(x, bell);
        value = x * cdf;
        slope = cdf + x * bell * 0.3989422804014327f;
    } else if (F == GELUTanh) {
        float t = tanhf(ROOT_2_OVER_PI * (x + CUBIC * x * x * x));
        value = 0.5f * x * (1.0f + t);
        slope = 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * ROOT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x);
    } else if (F == SiLU) {
        float s = sigmoid(x);
        value = x * s;
        slope = s * (1.0f + x * (1.0f - s));
    } else if (F == Tanh) {
        value = tanhf(x);
        slope = 1.0f - value * value;
    } else {
        value = sigmoid(x);
        slope = value * (1.0f - value);
    }
}
