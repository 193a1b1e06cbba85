// Package suggest finds what a misspelt name was meant to be.
package suggest

// Nearest is the name that needs the fewest changes of letters to become another; "" where
// none is near.
func Nearest(name string, among []string) (nearest string) {
	least := len(name)/2 + 1
	for _, a := range among {
		if d := distance(name, a); d < least {
			nearest, least = a, d
		}
	}
	return nearest
}

// Hint is what to add to an error about an unknown name: "; did you mean X?", or nothing.
func Hint(name string, among []string) string {
	if near := Nearest(name, among); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// distance is how many letters must be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
