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
	rate rate
}

// peer reads a part such as "peer@300GB/s" or "peer:gpu0-gpu1@300GB/s".
func (p *parser) peer(c part) error {
	var item peerItem
	if c.sized {
		var ok bool
		if item.a, item.b, ok = strings.Cut(c.size, "-"); !ok {
			return fmt.Errorf("%q does not name two devices; write peer:gpu0-gpu1@300GB/s", c.size)
		}
	}
	if len(c.figures) != 1 {
		return errors.New("it needs one rate; write peer@300GB/s")
	}
	if err := item.rate.parse(c.figures[0]); err != nil {
		return err
	}
	p.links = append(p.links, item)
	return nil
}

// link turns the peer parts into pairs, now that all devices are known.
func (p *parser) link(m *Machine) error {
	linked := map[[2]string]bool{}
	for _, item := range p.links {
		pairs := [][2]string{{item.a, item.b}}
		if item.a == "" && item.b == "" {
			pairs = m.gpuPairs()
		}
		for _, pair := range pairs {
			if err := m.pair(pair, item.rate, linked); err != nil {
				return fmt.Errorf("peer link %s-%s: %w", pair[0], pair[1], err)
			}
		}
	}
	return nil
}

// pair links two devices. linked holds both orders of every pair so far.
func (m *Machine) pair(p [2]string, r rate, linked map[[2]string]bool) error {
	for _, name := range p {
		if _, ok := m.Device(name); !ok {
			return fmt.Errorf("there is no device %q", name)
		}
	}
	if p[0] == p[1] || linked[p] {
		return errors.New("a link joins two different devices, and each pair only once")
	}
	linked[p], linked[[2]string{p[1], p[0]}] = true, true
	m.Peers = append(m.Peers, Peer{A: p[0], B: p[1], Rate: units.Rate(r)})
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
