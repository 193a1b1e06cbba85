package placement

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"

	"spillway/plan"
)

// flat is a model of an embedding, equal layers of two modules, and a head, as
// tools/reference/placement.py makes them; sizes in bytes.
func flat(embed, layer, layers, head int64) []Block {
	list := []Block{{Name: "embed", Params: []string{"embed.weight"}, Bytes: embed}}
	for i := range layers {
		name := fmt.Sprintf("layer%d", i)
		list = append(list, Block{Name: name, Params: []string{name + ".a.weight", name + ".b.weight"}, Bytes: layer, Layer: true})
	}
	return append(list, Block{Name: "head", Params: []string{"head.weight"}, Bytes: head})
}

// The words give the maps that accelerate gives, on random models and limits.
func TestWordsAgainstAccelerate(t *testing.T) {
	raw, err := os.ReadFile("testdata/accelerate.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Sizes map[string]int64
		Cases []struct {
			Embed, Layer, Layers, Head int64 // in elements of four bytes
			Memory                     map[string]int64
			Maps                       map[string]map[string]string
		}
	}
	if err := json.Unmarshal(raw, &fixture); err != nil {
		t.Fatal(err)
	}
	for text, want := range fixture.Sizes {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s is %d (%v), accelerate says %d", text, got, err, want)
		}
	}
	compared := 0
	for i, c := range fixture.Cases {
		memory := Memory{Devices: map[int]int64{}, Host: c.Memory["cpu"], Given: true}
		for key, n := range c.Memory {
			if d, err := strconv.Atoi(key); err == nil {
				memory.Devices[d] = n
			}
		}
		blocks := flat(4*c.Embed, 4*c.Layer, c.Layers, 4*c.Head)
		for word, want := range c.Maps {
			got, err := byWord(word, blocks, memory)
			if err != nil {
				t.Fatal(err)
			}
			for name, at := range want {
				compared++
				if got[name].String() != at {
					t.Errorf("case %d, %s: %s is on %v, accelerate puts it on %s", i, word, name, got[name], at)
				}
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d places compared", compared)
	}
}

// A case by hand: 52 bytes, an embedding of 10, four layers of 8, a head of 10.
func TestWordsByHand(t *testing.T) {
	blocks := flat(10, 8, 4, 10)
	for _, c := range []struct {
		word   string
		limits map[int]int64
		host   int64
		want   string // of embed, layers, head
	}{
		// device 0 keeps 10 for the head: 20 hold embed and a layer; device 1 two layers
		{Sequential, map[int]int64{0: 30, 1: 20}, 100, "0 0 1 1 cpu cpu"},
		// host memory keeps room as well: 18 - 10 hold one layer, the head finds 10 of 18
		{Sequential, map[int]int64{0: 30, 1: 20}, 18, "0 0 1 1 cpu cpu"},
		{Sequential, map[int]int64{0: 30, 1: 20}, 17, "0 0 1 1 disk disk"},
		// share 26, and 1.25 times the mean module (5) or layer (8): 36; less 10 for the head
		{Balanced, map[int]int64{0: 100, 1: 100}, 0, "0 0 0 1 1 1"},
		// 52 fit the other two devices of 30, the first is left empty
		{BalancedLow0, map[int]int64{0: 30, 1: 30, 2: 30}, 0, "1 1 1 2 2 2"},
	} {
		at, err := byWord(c.word, blocks, Memory{Devices: c.limits, Host: c.host, Given: true})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, b := range blocks {
			got += " " + at[b.Name].String()
		}
		if got[1:] != c.want {
			t.Errorf("%s in %v and %d: %s, want %s", c.word, c.limits, c.host, got[1:], c.want)
		}
	}
}

// Without limits from the user a single device is filled to nine tenths.
func TestAutoIsCautious(t *testing.T) {
	blocks := flat(10, 8, 4, 10) // 52, of which the first device must hold all
	for given, want := range map[bool]plan.Tier{true: plan.OnDevice, false: plan.OnHost} {
		at, err := byWord(Auto, blocks, Memory{Devices: map[int]int64{0: 55}, Host: 1000, Given: given})
		if err != nil {
			t.Fatal(err)
		}
		if at["head"].Tier != want {
			t.Errorf("limits given: %v; the head is on %v", given, at["head"])
		}
	}
	if _, err := byWord("best", blocks, Memory{}); err == nil {
		t.Error("the word best is taken")
	}
}
