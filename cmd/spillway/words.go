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

// three prints three significant digits.
func three(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// percent prints a share.
func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// counted prints "1 file", "3 files".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(int64(n)) + " " + what + "s"
}
