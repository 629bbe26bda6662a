//go:build !race

package routetable

const underRace = false
