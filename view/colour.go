// Package view turns event logs and plans into what people look at: curves, memory by
// purpose, timelines, comparisons. Each view is a function that gives numbers; its table,
// JSON, CSV and picture are made of those, so that no two of them can differ.
package view

import (
	"fmt"
	"strings"

	"spillway/plan"
	"spillway/trace"
)

// Colour is how something is drawn: on a page with a light and with a dark background, and
// in a terminal of 256 colours.
type Colour struct {
	Name        string // of what is drawn so, a CSS class with "c-" before it
	Light, Dark string
	Terminal    int
}

// Colours of the verbs of a plan, and of what bytes are for. Terminal, page and pictures
// use this table. Neighbours can be told apart with the common colour vision deficiencies.
var (
	verbColours = map[trace.Verb]Colour{
		trace.Move:   {"move", "#b8860b", "#e9b949", 178},
		trace.Run:    {"run", "#0b61a4", "#62b0e8", 32},
		trace.Reduce: {"reduce", "#6b7280", "#a3acb9", 245},
		trace.Update: {"update", "#b3261e", "#f08a7d", 167},
		trace.Free:   {"free", "#9ca3af", "#6b7280", 240},
	}
	classColours = []struct {
		class plan.Class
		Colour
	}{
		{plan.Weight, Colour{"weight", "#0b61a4", "#62b0e8", 32}},
		{plan.Master, Colour{"master", "#6fb7e0", "#2f7fb8", 74}},
		{plan.State, Colour{"state", "#d98e04", "#f2bd4b", 172}},
		{plan.Gradient, Colour{"gradient", "#b3261e", "#f08a7d", 167}},
		{plan.Activation, Colour{"activation", "#0f8a5f", "#4fcf9f", 36}},
		{plan.Workspace, Colour{"workspace", "#c9c04a", "#e6df7a", 185}},
		{plan.Cache, Colour{"cache", "#7d3c98", "#c79be0", 97}},
		{plan.BatchData, Colour{"batch", "#c2699b", "#e7a3c6", 175}},
		{plan.ResultData, Colour{"result", "#4b5563", "#6f7a8a", 241}},
		{plan.Constant, Colour{"constant", "#111827", "#d5dbe4", 235}},
		{plan.Gaps, Colour{"gaps", "#e5e7eb", "#374151", 254}},
	}
	// lineColours are those of runs, in their order.
	lineColours = []Colour{
		{"line0", "#0b61a4", "#62b0e8", 32}, {"line1", "#c2410c", "#fb9a6b", 166}, {"line2", "#0f8a5f", "#4fcf9f", 36},
		{"line3", "#111827", "#f3f4f6", 255}, {"line4", "#8a6d00", "#e6c84a", 136}, {"line5", "#4b5563", "#cbd2dc", 245},
	}
)

// ColourOfVerb is how instructions of a verb are drawn.
func ColourOfVerb(v trace.Verb) Colour { return verbColours[v] }

// ColourOf is how bytes of a class are drawn.
func ColourOf(c plan.Class) Colour {
	for _, entry := range classColours {
		if entry.class == c {
			return entry.Colour
		}
	}
	return classColours[len(classColours)-1].Colour
}

// Classes are all classes, in the order in which they are stacked.
func Classes() (list []plan.Class) {
	for _, entry := range classColours {
		list = append(list, entry.class)
	}
	return list
}

func lineColour(i int) Colour { return lineColours[i%len(lineColours)] }

// Texts and lines of pictures.
var inkColours = []Colour{
	{"ink", "#1f2933", "#e5e9f0", 252}, {"faint", "#52606d", "#a9b4c2", 246}, {"grid", "#e4e7eb", "#333d4b", 238}, {"late", "#a3127a", "#ff8ad1", 162}, {"paper", "#ffffff", "#12171f", 0},
}

func ink(name string) Colour {
	for _, c := range inkColours {
		if c.Name == name {
			return c
		}
	}
	return inkColours[0]
}

// allColours is the whole table.
func allColours() []Colour {
	list := append([]Colour(nil), inkColours...)
	for _, v := range []trace.Verb{trace.Move, trace.Run, trace.Reduce, trace.Update, trace.Free} {
		list = append(list, verbColours[v])
	}
	for _, c := range classColours {
		list = append(list, c.Colour)
	}
	for _, t := range tiers {
		list = append(list, tierColours[t])
	}
	return append(list, lineColours...)
}

// CSS gives pictures inside a page the colours of its scheme: a picture by itself has the
// light ones as attributes, which a style sheet overrides. Variables with the same names serve
// scripts.
func CSS() string {
	var light, dark, rules strings.Builder
	for _, c := range allColours() {
		fmt.Fprintf(&light, "--c-%s:%s;", c.Name, c.Light)
		fmt.Fprintf(&dark, "--c-%s:%s;", c.Name, c.Dark)
		fmt.Fprintf(&rules, "svg .f-%s{fill:var(--c-%s)}svg .s-%s{stroke:var(--c-%s)}\n", c.Name, c.Name, c.Name, c.Name)
	}
	return fmt.Sprintf(":root{color-scheme:light dark;%s}\n@media (prefers-color-scheme:dark){:root{%s}}\n%s", light.String(), dark.String(), rules.String())
}
