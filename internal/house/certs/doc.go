// Package certs makes the certificates of tests: an authority, and what it signs. Read first: New in certs.go.
package certs
