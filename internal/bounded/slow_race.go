//go:build race

package bounded

// slow is how many times longer everything takes: the race detector looks at every access.
const slow = 15
