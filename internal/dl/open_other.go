//go:build !linux && !darwin

package dl

import (
	"errors"
	"runtime"
)

var errSystem = errors.New("libraries cannot be opened at run time on " + runtime.GOOS)

func open(string) (uintptr, error) { return 0, errSystem }

func symbol(uintptr, string) (uintptr, error) { return 0, errSystem }

func call(uintptr, *Args) uintptr { panic(errSystem) }
