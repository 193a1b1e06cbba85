package generate

import (
	"cmp"
	"math"
	"slices"
)

// tree is guessed continuations of a text. Those that begin alike share nodes.
type tree struct {
	nodes  []node
	leaves []int // the last nodes of the branches that are computed, in the order of the branches
}

// node is a guessed token. The first node is the text itself.
type node struct {
	token  int32
	parent int // -1 for the text
	depth  int // tokens guessed up to it
	chance float64
	bin    int // of the drafter's own chance, for calibration
	first  bool
	branch int // one that computes it, -1 for none
}

func newTree() *tree { return &tree{nodes: []node{{parent: -1, chance: 1, branch: -1}}} }

// path is the tokens from the text to a node.
func (t *tree) path(n int) []int32 {
	list := make([]int32, t.nodes[n].depth)
	for ; n > 0; n = t.nodes[n].parent {
		list[t.nodes[n].depth-1] = t.nodes[n].token
	}
	return list
}

// child is the node after another one that guesses a token, -1 for none.
func (t *tree) child(of int, token int32) int {
	for i := of + 1; i < len(t.nodes); i++ {
		if t.nodes[i].parent == of && t.nodes[i].token == token {
			return i
		}
	}
	return -1
}

// computed is how many guessed tokens are computed.
func (t *tree) computed() (n int) {
	for _, node := range t.nodes[1:] {
		if node.branch >= 0 {
			n++
		}
	}
	return n
}

// branches are the tokens of each branch that is computed.
func (t *tree) branches() (list [][]int32) {
	for _, leaf := range t.leaves {
		list = append(list, t.path(leaf))
	}
	return list
}

// pace decides what is guessed, from how often guesses were right so far. Guesses that were not computed
// count too: whether they were right shows as the text goes on.
type pace struct {
	of    *Speculation
	right float64 // share of first guesses that were right, lately
	// rates are shares of guesses that were right, lately, by what the drafter said of their chance.
	rates [chanceBins]float64
}

const (
	// memory is the weight of what was seen before in shares of right guesses.
	memory = 0.9
	// chanceBins is how many classes of chances are told apart: those of even, 3:1, 9:1 and so on, both ways.
	chanceBins = 9
	// leastGain is how much faster tokens must come by forecast: it is not that exact.
	leastGain = 1.02
	// leastChance is that of guesses which are never worth a thought.
	leastChance = 1e-3
)

func newPace(s *Speculation) *pace {
	p := &pace{of: s, right: 0.7}
	for i := range p.rates {
		p.rates[i] = 1 / (1 + math.Pow(3, float64(chanceBins/2-i)))
	}
	return p
}

// bin is the class of a chance.
func bin(chance float64) int {
	chance = min(max(chance, 1e-6), 1-1e-6)
	return min(max(int(math.Round(math.Log(chance/(1-chance))/math.Log(3)))+chanceBins/2, 0), chanceBins-1)
}

// saw counts what was guessed after a node, when the token there is certain.
func (p *pace) saw(t *tree, at int, token int32) {
	for i := at + 1; i < len(t.nodes); i++ {
		n := &t.nodes[i]
		if n.parent != at {
			continue
		}
		right := 0.0
		if n.token == token {
			right = 1
		}
		if p.rates[n.bin] += (right - p.rates[n.bin]) * (1 - memory); n.first {
			p.right += (right - p.right) * (1 - memory)
		}
	}
}

// add adds what may follow a node.
func (p *pace) add(t *tree, after int, list []Candidate) {
	for i, c := range list {
		n := node{token: c.Token, parent: after, depth: t.nodes[after].depth + 1, bin: bin(c.Chance), first: i == 0, branch: -1}
		n.chance = t.nodes[after].chance * p.rates[n.bin]
		t.nodes = append(t.nodes, n)
	}
}

// seconds is the forecast of a step of so many rows.
func (p *pace) seconds(rows int) float64 {
	if p.of.Seconds == nil {
		return 1
	}
	return max(p.of.Seconds(rows), 1e-12)
}

// draft is the forecast of the drafter's time for what follows so many continuations.
func (p *pace) draft(count int) float64 {
	if p.of.DraftSeconds == nil {
		return 0
	}
	return p.of.DraftSeconds(count)
}

// bet is a choice of what is computed: tokens that come of it on average, in a forecast time.
type bet struct {
	leaves  []int
	rows    int
	tokens  float64
	seconds float64
}

func (b bet) rate() float64 { return b.tokens / b.seconds }

// choose is the best bet on a tree whose guessing took some seconds: branch by branch, the one with which tokens come
// fastest, as long as they come faster. A bet without branches is a step of one row.
func (p *pace) choose(t *tree, drafted float64) bet {
	best := bet{tokens: 1, rows: 1, seconds: p.seconds(1) + drafted}
	covered := make([]bool, len(t.nodes))
	covered[0] = true
	for need := leastGain; ; need = 1 {
		next, end := bet{}, -1
		for n := 1; n < len(t.nodes); n++ {
			if covered[n] {
				continue
			}
			b, ok := p.with(t, best, covered, n)
			if b.seconds += drafted; ok && (end < 0 || b.rate() > next.rate()) {
				next, end = b, n
			}
		}
		if end < 0 || next.rate() <= best.rate()*need {
			return best
		}
		best = next
		for n := end; n > 0; n = t.nodes[n].parent {
			covered[n] = true
		}
	}
}

// with is a bet with the path to one more node, as a branch of its own or as a longer one; its time is that of its step.
func (p *pace) with(t *tree, b bet, covered []bool, to int) (_ bet, ok bool) {
	next := bet{tokens: b.tokens}
	at := to
	for ; !covered[at]; at = t.nodes[at].parent {
		next.tokens += t.nodes[at].chance
	}
	if i := slices.Index(b.leaves, at); i >= 0 {
		next.leaves, next.rows = slices.Clone(b.leaves), b.rows+t.nodes[to].depth-t.nodes[at].depth
		next.leaves[i] = to
	} else {
		next.leaves, next.rows = append(slices.Clip(b.leaves), to), b.rows+1+t.nodes[to].depth
		if len(b.leaves) == 0 { // the one row is that of the first branch
			next.rows--
		}
	}
	next.seconds = p.seconds(next.rows) + float64(max(len(next.leaves)-1, 0))*p.of.BranchSeconds
	return next, len(next.leaves) <= 1+p.of.Branches
}

// front are the nodes after which it pays to guess on, at most so many tokens deep, by the chance of what was guessed and
// the forecast; none where guessing should end. The time so far is that of guessing.
func (p *pace) front(t *tree, nodes []int, deepest int, drafted float64) []int {
	slices.SortFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(t.nodes[b].chance, t.nodes[a].chance), cmp.Compare(a, b))
	})
	nodes = nodes[:min(len(nodes), 1+p.of.Branches)]
	if len(nodes) == 0 {
		return nil
	}
	best := p.choose(t, drafted)
	pays := func(nodes []int) bool {
		gain, chance := 0.0, 0.0
		for _, n := range nodes {
			chance += t.nodes[n].chance
		}
		for k := 1; k <= deepest-t.nodes[nodes[0]].depth; k++ {
			chance *= p.right
			gain += chance
			rows := max(best.rows, len(nodes)*(1+t.nodes[nodes[0]].depth)) + k*len(nodes)
			seconds := p.seconds(rows) - p.seconds(best.rows) + float64(k)*p.draft(len(nodes))
			if (best.tokens+gain)/(best.seconds+seconds) > best.rate()*leastGain {
				return true
			}
		}
		return false
	}
	if !pays(nodes[:1]) && !pays(nodes) {
		return nil
	}
	count := 1
	for count < len(nodes) {
		chance := t.nodes[nodes[count]].chance
		if chance < leastChance || chance*p.right <= (p.draft(count+1)-p.draft(count))*best.rate() {
			break
		}
		count++
	}
	return nodes[:count]
}
