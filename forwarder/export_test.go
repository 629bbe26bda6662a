package forwarder

// Lines is the number of lines to dialled hops.
func (n *Node) Lines() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.lines)
}
