// Blocks of a cluster run at the same time and reach each other's shared memory, on GPUs of generation 9 and later. On
// others, and where a launch names no cluster, a block is alone.

__device__ __forceinline__ void clusterSync() {
#if __CUDA_ARCH__ >= 900
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

// putIn writes a number to where another block of the cluster has what is at p here; it is there behind clusterSync.
// The other block must have begun, which a clusterSync before says.
__device__ __forceinline__ void putIn(u64 *p, u32 block, u64 x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\nst.shared::cluster.u64 [a], %2;\n}" ::"r"(sharedAt(p)), "r"(block), "l"(x) : "memory");
#else
    *p = x;
#endif
}

// takeFrom reads what another block of the cluster has where p is here. That block must not end before.
__device__ __forceinline__ u32 takeFrom(const u32 *p, u32 block) {
#if __CUDA_ARCH__ >= 900
    u32 x;
    asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %1, %2;\nld.shared::cluster.u32 %0, [a];\n}" : "=r"(x) : "r"(sharedAt(p)), "r"(block) : "memory");
    return x;
#else
    return *p;
#endif
}
