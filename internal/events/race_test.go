//go:build race

package events

const underRace = true
