// Package leaks fails a package's tests where goroutines outlive them.
package leaks
