// Package house holds the rules of this repository as tests: which package may import which, which may use a dependency,
// and what every package says of itself. Read first: floors in floors_test.go. No other package imports it.
package house
