package admin

import "github.com/fingerpost/fingerpost/routetable"

// AnswerAll answers requests of one caller as Answer does, in their order, and calls answered with each reply, in their order too. Edits that
// follow each other go to the table together, so that they share what one of them would wait for; what comes behind an edit sees it.
func (c *Core) AnswerAll(caller Caller, messages [][]byte, answered func(Reply)) {
	var edits []*waitingEdit
	flush := func() {
		c.apply(edits)
		for _, x := range edits {
			answered(x.reply(c))
		}
		edits = edits[:0]
	}
	for _, m := range messages {
		q, err := decodeRequest(m)
		q.canWatch = true
		if err == nil {
			if x := c.editOf(caller, q); x != nil {
				edits = append(edits, x)
				continue
			}
		}
		flush()
		answered(c.replyTo(caller, q, err))
	}
	flush()
}

// waitingEdit is a request that is one edit of the table.
type waitingEdit struct {
	*planned
	q  request
	op tableOperation
}

// editOf is the edit that a request asks for; nil where it is none, or refused before it comes to the table.
func (c *Core) editOf(caller Caller, q request) *waitingEdit {
	if !tableOperations[q.operation].edits {
		return nil
	}
	op, err := q.tableOperation(caller)
	if err != nil {
		return nil
	}
	arguments, err := q.arguments()
	if err != nil {
		return nil
	}
	cmd, dryRun, err := parseEdit(q.operation, arguments)
	if err != nil || dryRun || caller.may(cmd.role(), cmd.operation()) != nil {
		return nil
	}
	return &waitingEdit{c.plan(caller, cmd), q, op}
}

// apply does the edits.
func (c *Core) apply(edits []*waitingEdit) {
	list := make([]*routetable.Request, len(edits))
	for i, x := range edits {
		list[i] = &x.Request
	}
	c.table.PlanAll(list)
}

// reply is the reply to an edit that was done.
func (x *waitingEdit) reply(c *Core) Reply {
	ch, err := x.changed(x.Change, x.Err)
	a := answer{}
	if err == nil {
		a = changeAnswer(ch)
	}
	return replyWith(x.q, c.withRevision(x.op, a), err)
}
