package tokenizer

import (
	"sort"
	"strings"
)

// trie finds the tokens at the start of a text. Nodes and sorted edges are in two flat
// slices, so it takes about as much memory as the tokens.
type trie struct {
	nodes []trieNode
	edges []trieEdge
}

type trieNode struct {
	first, count int32 // its edges
	id           int32 // the token that ends here, or -1
}

type trieEdge struct {
	label byte
	node  int32
}

// trie returns a trie of the tokens that start with prefix, without the prefix.
func (v *vocab) trie(prefix string) *trie {
	var tokens []string
	var ids []int32
	for id, token := range v.tokens {
		if len(token) > maxMatched {
			panic(failf("token %d is %d bytes long, at most %d are supported", id, len(token), maxMatched))
		}
		if tail, ok := strings.CutPrefix(token, prefix); ok && tail != "" {
			tokens, ids = append(tokens, tail), append(ids, int32(id))
		}
	}
	return newTrie(tokens, ids)
}

// newTrie returns a trie of the given tokens, which must differ; ids[i] is the id of
// tokens[i].
func newTrie(tokens []string, ids []int32) *trie {
	order := make([]int, len(tokens))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(a, b int) bool { return tokens[order[a]] < tokens[order[b]] })
	t := &trie{nodes: []trieNode{{id: -1}}}
	type task struct {
		node  int32
		group []int // sorted tokens that share their first depth bytes
		depth int
	}
	// A queue rather than recursion: a token may be long.
	for queue := []task{{0, order, 0}}; len(queue) > 0; queue = queue[1:] {
		now := queue[0]
		if len(now.group) > 0 && len(tokens[now.group[0]]) == now.depth {
			t.nodes[now.node].id = ids[now.group[0]]
			now.group = now.group[1:]
		}
		t.nodes[now.node].first = int32(len(t.edges))
		for len(now.group) > 0 {
			label := tokens[now.group[0]][now.depth]
			n := sort.Search(len(now.group), func(i int) bool { return tokens[now.group[i]][now.depth] > label })
			child := int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{id: -1})
			t.edges = append(t.edges, trieEdge{label, child})
			queue = append(queue, task{child, now.group[:n], now.depth + 1})
			now.group = now.group[n:]
		}
		t.nodes[now.node].count = int32(len(t.edges)) - t.nodes[now.node].first
	}
	return t
}

// walk calls visit for every token that s starts with, the shortest first.
func (t *trie) walk(s string, visit func(id int32, length int)) {
	node := &t.nodes[0]
	for i := 0; i < len(s); i++ {
		next := t.child(node, s[i])
		if next < 0 {
			return
		}
		if node = &t.nodes[next]; node.id >= 0 {
			visit(node.id, i+1)
		}
	}
}

// child follows an edge, found by binary search. It returns -1 if there is none.
func (t *trie) child(node *trieNode, label byte) int32 {
	low, high := node.first, node.first+node.count
	for low < high {
		if mid := (low + high) / 2; t.edges[mid].label < label {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < node.first+node.count && t.edges[low].label == label {
		return t.edges[low].node
	}
	return -1
}
