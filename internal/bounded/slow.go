//go:build !race

package bounded

// slow is how many times longer everything takes.
const slow = 1
