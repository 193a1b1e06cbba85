package nvml

import (
	"testing"
	"unsafe"
)

func TestStateInALine(t *testing.T) {
	idle := GPU{LinkGeneration: 1, LinkWidth: 16, LinkMax: [2]int{5, 16}, Temperature: 34, Power: 75_400, PowerLimit: 700_000, Clock: 345, ClockMax: 1980, Busy: 0}
	if got, want := idle.String(), "PCIe 1 × 16, 5 when busy, 34 °C, 75 of 700 W, 345 of 1980 MHz, 0% busy"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	silent := GPU{LinkGeneration: -1, LinkWidth: -1, LinkMax: [2]int{-1, -1}, Temperature: -1, Power: -1, PowerLimit: -1, Clock: -1, ClockMax: -1, Busy: -1}
	if got := silent.String(); got != "" {
		t.Errorf("a GPU that reports nothing is %q", got)
	}
}

// On a machine with a driver the library answers; elsewhere the error says what to do.
func TestOpen(t *testing.T) {
	l, err := Open()
	if err != nil {
		t.Skip("no driver of NVIDIA: ", err)
	}
	defer l.Close()
	if _, err := l.GPU("0000ffff:ff:1f.0"); err == nil {
		t.Error("a GPU that does not exist was found")
	}
}

func TestWhatLowersTheClock(t *testing.T) {
	hot := GPU{Temperature: 90, Clock: 1200, ClockMax: 1980, Power: -1, Busy: 99, Lowered: namesOf(0x1 | 0x4 | 0x20)}
	if got, want := hot.String(), "90 °C, 1200 of 1980 MHz, lowered by power limit and temperature, 99% busy"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The struct is as long as NVML's header has it, with the numbers where they are there.
func TestPlaceOnTheBus(t *testing.T) {
	var p pciInfo
	if size, at := unsafe.Sizeof(p), unsafe.Offsetof(p.domain); size != 68 || at != 16 {
		t.Errorf("%d bytes, the domain is at %d", size, at)
	}
}
