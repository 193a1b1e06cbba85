// What the kernels of decoding share: a step computes a few rows, so that all that matters is
// to keep the memory busy from the first weight to the last.
//
// These kernels may be launched before the one in front of them has ended (see early in
// prepared.go). What nothing writes during a step, weights above all, they fetch at once;
// awaitPrevious returns when everything before has ended and is visible: the kernel in front, and since
// that has waited too, all others. releaseNext lets the next kernel of the stream begin as soon as there is room;
// kernels that leave room call it first.

__device__ __forceinline__ void awaitPrevious() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void releaseNext() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
