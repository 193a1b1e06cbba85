//go:build !amd64

package kernel

// bf16Dots is for CPUs that have a fast way.
var bf16Dots dotsFunc
