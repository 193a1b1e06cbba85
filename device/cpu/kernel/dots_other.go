//go:build !amd64

package kernel

import "spillway/dtype"

func dotsOf(dtype.Type) dotsFunc { return nil }
