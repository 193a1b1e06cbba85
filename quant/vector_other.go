//go:build !amd64

package quant

func available() []path { return []path{portable} }
