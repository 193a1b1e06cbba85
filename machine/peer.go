package machine

import (
	"errors"
	"fmt"
	"strings"

	"spillway/units"
)

// peerItem is a peer part; where a and b are empty it links all GPUs.
type peerItem struct {
	a, b string
	rate units.Rate
}

// noPeers is how a description says that GPUs have no direct links.
const noPeers = "none"

// peer reads a part such as "peer@300GB/s", "peer:gpu0-gpu1@300GB/s" or "peer:none".
func (p *parser) peer(c part) error {
	var item peerItem
	if c.size == noPeers && len(c.figures) == 0 {
		return nil
	}
	if c.sized {
		var ok bool
		if item.a, item.b, ok = strings.Cut(c.size, "-"); !ok {
			return fmt.Errorf("%q does not name two devices; write peer:gpu0-gpu1@300GB/s", c.size)
		}
	}
	if len(c.figures) != 1 {
		return errors.New("it needs one rate; write peer@300GB/s")
	}
	if err := rate(&item.rate).parse(c.figures[0]); err != nil {
		return err
	}
	p.links = append(p.links, item)
	return nil
}

// link turns the peer parts into pairs, now that all devices are known. Without any, GPUs have the links that their usual
// form has.
func (p *parser) link(m *Machine) error {
	if !p.seen["peer"] {
		m.Peers = m.UsualPeers()
		return nil
	}
	linked := map[[2]string]bool{} // both orders of every pair so far
	for _, item := range p.links {
		pairs := [][2]string{{item.a, item.b}}
		if item.a == "" && item.b == "" {
			pairs = m.gpuPairs()
		}
		for _, pair := range pairs {
			for _, name := range pair {
				if _, ok := m.Device(name); !ok {
					return fmt.Errorf("peer link %s-%s: there is no device %q", pair[0], pair[1], name)
				}
			}
			if pair[0] == pair[1] || linked[pair] {
				return fmt.Errorf("peer link %s-%s: a link joins two different devices, and each pair only once", pair[0], pair[1])
			}
			linked[pair], linked[[2]string{pair[1], pair[0]}] = true, true
			m.Peers = append(m.Peers, Peer{A: pair[0], B: pair[1], Rate: item.rate, Source: Given})
		}
	}
	return nil
}

// gpuPairs lists every pair of GPUs, in order.
func (m Machine) gpuPairs() [][2]string {
	var pairs [][2]string
	for i, a := range m.Devices {
		for _, b := range m.Devices[i+1:] {
			if a.Kind == GPU && b.Kind == GPU {
				pairs = append(pairs, [2]string{a.Name, b.Name})
			}
		}
	}
	return pairs
}

// UsualPeers are the links between GPUs of one name that are usually on a board with NVLink: up to eight are on one, in
// order, and boards are not linked.
func (m Machine) UsualPeers() (peers []Peer) {
	board, of := map[string]int{}, map[string]int{} // GPUs of a name so far, and the board of each
	for _, d := range m.Devices {
		if d.Kind == GPU {
			of[d.Name] = board[d.Model] / BoardGPUs
			board[d.Model]++
		}
	}
	for _, pair := range m.gpuPairs() {
		a, _ := m.Device(pair[0])
		b, _ := m.Device(pair[1])
		if model, known := findModel(a.Model); known && model.peer > 0 && a.Model == b.Model && of[a.Name] == of[b.Name] {
			peers = append(peers, Peer{A: a.Name, B: b.Name, Rate: model.peer, Source: Published})
		}
	}
	return peers
}
