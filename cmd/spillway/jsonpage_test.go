package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"spillway/inspect"
)

// The page about --json names every key that plan and estimate may write.
func TestJSONPageNamesEveryKey(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "json.md"))
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, of := range []any{planReport{}, failure{}, inspect.Memory{}, inspect.Fit{}, inspect.Largest{}} {
		jsonKeys(reflect.TypeOf(of), keys, map[reflect.Type]bool{})
	}
	if len(keys) < 100 {
		t.Errorf("only %d keys were found", len(keys))
	}
	for key, of := range keys {
		if !strings.Contains(string(raw), "`"+key+"`") && !strings.Contains(string(raw), `"`+key+`"`) {
			t.Errorf("docs/json.md says nothing of %q, of %s", key, of)
		}
	}
}

// jsonKeys collects the keys of a type and of all below it, with the type that has each.
func jsonKeys(of reflect.Type, keys map[string]string, seen map[reflect.Type]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		jsonKeys(of.Elem(), keys, seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[of] || of.PkgPath() == "time" {
		return
	}
	seen[of] = true
	for field := range of.Fields() {
		tag, tagged := field.Tag.Lookup("json")
		name, _, _ := strings.Cut(tag, ",")
		switch {
		case name == "-" || !field.IsExported() && !field.Anonymous:
			continue
		case name == "Tables", field.Type.Name() == "Tables": // of what was measured
			keys[name] = of.String()
			continue
		case tagged && name != "":
			keys[name] = of.String()
		case !field.Anonymous:
			keys[field.Name] = of.String() + ", without a tag"
		}
		jsonKeys(field.Type, keys, seen)
	}
}
