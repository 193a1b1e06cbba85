// Command pictures draws the pictures of the pages from the code:
//
//	docs/packages.svg   the packages and who imports whom, from go list
//	docs/iteration.svg  one training iteration as a timeline, from a plan's forecast
//
// Run it after a change of either; a test says when a picture is out of date.
//
//	go run ./tools/pictures
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// pictures by the file they are written to, relative to the root of the repository.
var pictures = map[string]func(root string) (string, error){
	filepath.Join("docs", "packages.svg"):  drawPackages,
	filepath.Join("docs", "iteration.svg"): drawIteration,
}

func main() {
	for name, draw := range pictures {
		text, err := draw(".")
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "pictures: drawing %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}
