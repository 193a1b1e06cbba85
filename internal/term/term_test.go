package term

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestWidthOfWhatIsNoTerminal(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if n := Width(null); n != 0 {
		t.Errorf("%s is a terminal of %d columns", os.DevNull, n)
	}
	if n := Width(&strings.Builder{}); n != 0 {
		t.Errorf("a string is a terminal of %d columns", n)
	}
}

func TestTableAligns(t *testing.T) {
	var table Table
	table.Row("", "device", "host")
	table.Row("weights", "1.3 GiB", "15.0 GiB")
	table.Row("größe", "", "7 B")
	table.Row("end")
	var b strings.Builder
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"          device      host\n" +
		"weights  1.3 GiB  15.0 GiB\n" +
		"größe                  7 B\n" +
		"end\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// line is a progress line with a clock of its own.
func line(width int, every time.Duration) (*Line, *strings.Builder, *time.Time) {
	var b strings.Builder
	now := time.Unix(1000, 0)
	return &Line{w: &b, width: width, every: every, now: func() time.Time { return now }}, &b, &now
}

func TestLineOnAPipe(t *testing.T) {
	l, out, now := line(0, onPipe)
	asked := 0
	for range 25 {
		l.Show(func() string { asked++; return "step" })
		*now = now.Add(time.Second)
	}
	l.Done()
	if out.String() != "step\nstep\nstep\n" || asked != 3 {
		t.Errorf("25 seconds gave %q, the text was made %d times", out, asked)
	}
}

func TestLineOnATerminal(t *testing.T) {
	l, out, now := line(6, onTerminal)
	l.Show(func() string { return "äöü 123456" })
	l.Show(func() string { return "too soon" })
	*now = now.Add(time.Second)
	l.Print("kept")
	l.Show(func() string { return "b" })
	l.Done()
	l.Done()
	const clear = "\r\x1b[K"
	if want := clear + "äöü 1" + clear + "kept\n" + clear + "b" + clear; out.String() != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// What begins is shown at once on a terminal; a pipe has its ten seconds.
func TestLineBegins(t *testing.T) {
	text := func(s string) func() string { return func() string { return s } }
	for width, want := range map[int]string{20: "\r\x1b[Kreading\r\x1b[Kplanning", 0: "reading\n"} {
		l, out, _ := line(width, onTerminal)
		l.Show(text("reading"))
		l.Begin(text("planning"))
		if out.String() != want {
			t.Errorf("%d columns: got %q, want %q", width, out, want)
		}
	}
}

func TestFits(t *testing.T) {
	narrow, _, _ := line(6, onTerminal)
	pipe, _, _ := line(0, onPipe)
	if !narrow.Fits("größe") || narrow.Fits("größer") || !pipe.Fits("größer als sechs") {
		t.Error("five of six columns can be shown, and all of a pipe")
	}
}
