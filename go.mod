module spillway

go 1.26.0

require (
	github.com/dlclark/regexp2/v2 v2.12.0
	golang.org/x/sys v0.49.0
	golang.org/x/text v0.43.0
)
