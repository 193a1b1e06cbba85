package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spillway/recipe"
)

// modelSetting is the argument of train as a setting of recipes.
const modelSetting = "model"

// noSetting are flags that recipes do not have: they are about the command line.
var noSetting = map[string]bool{"help": true, "json": true, "recipe": true, "print-recipe": true}

// settings are the flags of a command as recipes have them. Hidden ones are other names
// of some: they are read, not written.
func settings(cmd *cobra.Command, hidden bool) []recipe.Key {
	known := []recipe.Key{{Name: modelSetting, Help: "a folder, or the name of a shape"}}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if noSetting[f.Name] || f.Hidden && !hidden {
			return
		}
		_, help := pflag.UnquoteUsage(f)
		_, list := severalValues(f)
		k := recipe.Key{Name: f.Name, Help: strings.Join(strings.Fields(help), " "), Default: f.DefValue, List: list}
		if list {
			k.Default = "[]"
		}
		known = append(known, k)
	})
	return known
}

// severalValues are those of a flag that may have several: a list, or pairs of a name and
// a value, which pflag prints in brackets.
func severalValues(f *pflag.Flag) ([]string, bool) {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice(), true
	}
	if !strings.HasPrefix(f.Value.Type(), "stringTo") {
		return nil, false
	}
	pairs := strings.FieldsFunc(strings.Trim(f.Value.String(), "[]"), func(c rune) bool { return c == ',' })
	slices.Sort(pairs)
	return pairs, true
}

// applyRecipe sets flags that the command line leaves out, and gives the model: the
// argument, or the recipe's.
func applyRecipe(cmd *cobra.Command, file string, args []string) (model string, err error) {
	if len(args) > 0 {
		model = args[0]
	}
	if file == "" {
		return model, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the recipe: %w", err)
	}
	r, err := recipe.Read(file, raw, settings(cmd, true))
	if err != nil {
		return "", usageError{err}
	}
	given := givenFlags(cmd.Flags())
	for _, s := range r.Settings {
		switch {
		case s.Name == modelSetting && model == "":
			model = s.Values[0]
		case s.Name == modelSetting || given[s.Name]:
			continue // the command line wins
		default:
			if err := setFlag(cmd.Flags(), s); err != nil {
				return "", usageError{r.At(s, err)}
			}
		}
	}
	return model, nil
}

// givenFlags are those that have been set, under this name or another.
func givenFlags(flags *pflag.FlagSet) map[string]bool {
	given := map[string]bool{}
	flags.Visit(func(set *pflag.Flag) {
		flags.VisitAll(func(f *pflag.Flag) { given[f.Name] = given[f.Name] || f.Value == set.Value })
	})
	return given
}

func setFlag(flags *pflag.FlagSet, s recipe.Setting) error {
	for _, v := range s.Values {
		if err := flags.Set(s.Name, v); err != nil {
			return err
		}
	}
	return nil
}

// printRecipe writes the flags that were given as a recipe.
func printRecipe(w io.Writer, cmd *cobra.Command, model string) error {
	set := map[string][]string{}
	if model != "" {
		set[modelSetting] = []string{model}
	}
	known, given := settings(cmd, false), givenFlags(cmd.Flags())
	for _, k := range known {
		f := cmd.Flags().Lookup(k.Name)
		if !given[k.Name] {
			continue
		}
		set[k.Name] = []string{f.Value.String()}
		if list, ok := severalValues(f); ok {
			set[k.Name] = list
		}
	}
	return recipe.Write(w, known, set)
}

// modelOrRecipe demands a model, unless a recipe may name it.
func modelOrRecipe(recipe *string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 0 && *recipe == "" {
			return usageErrorf("%d arguments given, it takes 1: MODEL", len(args))
		}
		return nil
	}
}
