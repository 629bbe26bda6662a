// Package mix makes the rows and the addresses that the routing table is measured with: the same ones for the same number,
// in every process. Read first: Mix.Row.
package mix
