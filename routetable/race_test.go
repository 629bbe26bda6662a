//go:build race

package routetable

// underRace tells that everything takes ten times as long.
const underRace = true
