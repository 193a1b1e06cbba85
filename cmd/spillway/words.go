package main

import (
	"fmt"
	"strconv"
)

// grouped prints an integer with commas: "128,256".
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent prints a share.
func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// plural prints "1 file", "3 files".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(int64(n)) + " " + what + "s"
}
