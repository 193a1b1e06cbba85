//go:build !linux

package main

import "os/exec"

// startGently starts a program.
func startGently(cmd *exec.Cmd) error { return cmd.Start() }
