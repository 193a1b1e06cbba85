//go:build !amd64

package quant

func available() []path { return []path{portable} }

func fitAffineVector(f *fitting)    { fitAffineGo(f) }
func fitSymmetricVector(f *fitting) { fitSymmetricGo(f) }
