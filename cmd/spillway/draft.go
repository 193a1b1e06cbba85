package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"spillway/generate"
	"spillway/inference"
)

// draftFlags say who guesses tokens.
type draftFlags struct {
	draft       string // "" for nobody
	draftTokens int
	// draftBranches are all continuations that are guessed at once.
	draftBranches int
}

// bindDraft adds the flags of guessing.
func bindDraft(cmd *cobra.Command, o *draftFlags) {
	f := cmd.Flags()
	f.StringVar(&o.draft, "draft", "", "guess tokens and compute several in a step, which changes no text: by looking them up in the text with `ngram`, by the model in 4 bits with self, or by the model in a folder (default: guess none)")
	f.IntVar(&o.draftTokens, "draft-tokens", 7, "with --draft: guess at most `N` tokens after each other; fewer where that is faster by forecast")
	f.IntVar(&o.draftBranches, "draft-branches", 4, "with --draft: guess at most `N` continuations at once, a tree of tokens; fewer where that is faster by forecast")
}

// check refuses what has no effect.
func (o *draftFlags) check(given func(string) bool, noCache bool) error {
	switch {
	case o.draft == "" && given("draft"):
		return usageErrorf("--draft is empty; give ngram, self or the folder of a model")
	case o.draft == "" && given("draft-tokens"):
		return usageErrorf("--draft-tokens has no effect without --draft")
	case o.draft != "" && (o.draftTokens < 1 || o.draftTokens > 64):
		return usageErrorf("--draft-tokens %d; 1 to 64", o.draftTokens)
	case o.draft == "" && given("draft-branches"):
		return usageErrorf("--draft-branches has no effect without --draft")
	case o.draft != "" && (o.draftBranches < 1 || o.draftBranches > 16):
		return usageErrorf("--draft-branches %d; 1 to 16", o.draftBranches)
	case o.draft != "" && noCache:
		return usageErrorf("--draft has no effect with --no-cache; leave one out")
	}
	return nil
}

// start loads the model, and who guesses its tokens; the draft is nil where nobody does. Branches are left out where they do not fit,
// unless they were asked for.
func (o *draftFlags) start(ctx context.Context, m *inference.Model, size inference.Size, given func(string) bool) (*inference.Draft, *inference.Engine, error) {
	if o.draft != "" {
		size.Drafts, size.Branches = int64(o.draftTokens), int64(o.draftBranches-1)
	}
	return m.StartGuessing(ctx, o.draft, size, !given("draft-branches"))
}

// guessedText says how many guessed tokens were right.
func guessedText(s generate.Statistics) string {
	if s.Guessed == 0 {
		return "no tokens: none were found, or more of them in a step take longer than they save"
	}
	return fmt.Sprintf("%s in %.1f branches at once, %d of them right, %.1f tokens a step", plural(s.Guessed, "token"), s.PerPass(), s.Accepted, s.PerStep())
}
