package main

import (
	"flag"

	"github.com/spf13/cobra"

	"spillway/arch"
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
		if words := recipe.Words(f); len(words) > 0 {
			complete(cmd, f.Name, words)
		}
	})
}

// complete has the shell complete a flag with some words.
func complete(cmd *cobra.Command, name string, words []string) {
	// The flag is there: it was just added.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeModels has the shell complete arguments with presets, and with folders.
func completeModels(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return arch.Presets(), cobra.ShellCompDirectiveDefault
	}
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
