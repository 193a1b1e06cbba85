package spillway

import (
	"testing"

	"spillway/rig"
)

// Who says nothing has devices opened as the command line does, with its cache of measured
// rates, so that forecasts are the same.
func TestWrapUsesTheCacheOfRates(t *testing.T) {
	if o := (&Config{}).rigOptions(); o.Cache != rig.UserCache() || !o.Measure {
		t.Errorf("a zero Config opens devices with %+v", o)
	}
	c := Config{Rig: rig.Options{Cache: "elsewhere"}}
	if o := c.rigOptions(); o.Cache != "elsewhere" || o.Measure {
		t.Errorf("options that were given became %+v", o)
	}
}
