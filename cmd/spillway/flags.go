package main

import (
	"flag"

	"github.com/spf13/cobra"

	"spillway/recipe"
)

// bind adds settings to the flags of a command, but for some. Other programs' names of a
// setting are accepted and not shown.
func bind(cmd *cobra.Command, settings *flag.FlagSet, but ...string) {
	skip := map[string]bool{}
	for _, name := range but {
		skip[name] = true
	}
	settings.VisitAll(func(f *flag.Flag) {
		if skip[f.Name] {
			return
		}
		b := bound{settings, f}
		added := cmd.Flags().VarPF(b, f.Name, "", f.Usage)
		if added.Hidden = recipe.Aliases[f.Name] != ""; b.isBool() {
			added.NoOptDefVal = "true"
		}
	})
}

// bound is a setting as a flag of a command.
type bound struct {
	settings *flag.FlagSet
	flag     *flag.Flag
}

func (b bound) String() string {
	if b.flag == nil {
		return ""
	}
	return b.flag.Value.String()
}

// Set goes through the settings, which remember what was given.
func (b bound) Set(text string) error { return b.settings.Set(b.flag.Name, text) }

// Type decides how help shows the flag: a bool has no value, and what others take stands in
// their help.
func (b bound) Type() string {
	if b.isBool() {
		return "bool"
	}
	return "value"
}

func (b bound) isBool() bool {
	v, ok := b.flag.Value.(interface{ IsBoolFlag() bool })
	return ok && v.IsBoolFlag()
}
