package mesh

import (
	"math"
	"strings"
)

// adminCommand is one command of Rembus (rembus.md, 4).
type adminCommand struct {
	boss bool // it is for admins alone
	run  func(l *link, f *Frame, c *command) (Status, []byte)
}

var adminCommands = map[string]adminCommand{
	"setup":                 {false, (*link).handleSetup},
	"subscribe":             {false, (*link).handleSubscribe},
	"unsubscribe":           {false, (*link).handleUnsubscribe},
	"expose":                {false, (*link).handleExpose},
	"unexpose":              {false, (*link).handleUnexpose},
	"reactive":              {false, (*link).handleReactive},
	"private_topic":         {true, (*link).handlePrivateTopic},
	"public_topic":          {true, (*link).handlePublicTopic},
	"authorize":             {true, (*link).handleAuthorize},
	"unauthorize":           {true, (*link).handleUnauthorize},
	"private_topics_config": {true, (*link).handlePrivateTopicsConfig},
	"broker_config":         {true, (*link).handleBrokerConfig},
	"load_config":           {true, (*link).handleLoadConfig},
	"save_config":           {true, (*link).handleSaveConfig},
	"shutdown":              {true, (*link).handleShutdown},
	"enable_debug":          {true, (*link).handleEnableDebug},
	"disable_debug":         {true, (*link).handleDisableDebug},
	newsCommand:             {false, (*link).handleNews},
}

// handleAdmin does a command and answers it.
func (l *link) handleAdmin(f *Frame) error {
	if !l.permitted() {
		return errNotPermitted
	}
	l.flushNode()
	status, data := l.command(f)
	if status != StatusOK {
		l.m.count.refused.Add(1)
	}
	l.respond(f.ID, status, data)
	l.twin.Load().catchUp()
	return nil
}

func (l *link) command(f *Frame) (Status, []byte) {
	c, err := parseCommand(f.Data)
	if err != nil {
		return StatusError, appendText(nil, "the command cannot be read")
	}
	if c.Cmd == nil {
		return StatusError, nil
	}
	known, ok := adminCommands[*c.Cmd]
	switch {
	case !ok:
		return StatusUnknownCommand, nil
	case known.boss && !l.isBoss():
		return StatusError, nil
	}
	return known.run(l, f, &c)
}

// isBoss tells whether the peer may give privileged commands: it has the name of an admin, and has proven it or is on this machine (isadmin).
func (l *link) isBoss() bool {
	return l.dialled == nil && l.login.name != "" && l.m.isAdmin(l.login.name) && (l.login.attested || l.loopback)
}

func done(ok bool, refusal string) (Status, []byte) {
	if ok {
		return StatusOK, nil
	}
	return StatusError, appendText(nil, refusal)
}

// propagated are the commands that reach every router: subscribe, unsubscribe, expose, unexpose. change does it here.
func (l *link) propagated(f *Frame, c *command, change func(t *twin, topic string) bool, refusal string) (Status, []byte) {
	t, topic := l.twin.Load(), string(f.Name)
	if bad := badName(topic); bad != "" {
		return StatusError, appendText(nil, "bad topic: "+bad)
	}
	if !l.m.mayUse(t, topic) {
		return StatusError, appendText(nil, "unauthorized")
	}
	if t.kin.Load() != 0 { // it tells by news; this it has said while it did not know us yet, and will not take back
		return StatusOK, nil
	}
	if !l.m.markAndBroadcast(l, t, f, c) {
		return StatusOK, nil
	}
	if l.dialled != nil {
		l.dialled.told(strings.TrimPrefix(*c.Cmd, "un"), topic)
	}
	return done(change(t, topic), refusal)
}

func (l *link) handleSubscribe(f *Frame, c *command) (Status, []byte) {
	if c.LookBack == nil {
		c.LookBack = new(float64) // flooded with it: clients fail without (rembus.md, 6.2)
	}
	return l.propagated(f, c, func(t *twin, topic string) bool { return l.m.subscribe(t, topic, *c.LookBack) }, "not subscribed")
}

func (l *link) handleUnsubscribe(f *Frame, c *command) (Status, []byte) {
	return l.propagated(f, c, l.m.unsubscribe, string(f.Name)+": not subscribed")
}

// isLast tells whether nobody but a twin has what it says that it has no more: then it is told to others, who know one holder behind this router as any number.
func (m *Mesh) isLast(t *twin, c *command, topic string) bool {
	r := interest(t.name, topic, 0)
	switch *c.Cmd {
	case "unexpose":
		r, _ = m.implementation(t.name, topic)
	case "unsubscribe":
	default:
		return true
	}
	s := m.table.Snapshot()
	own := 0
	for _, x := range s.OfOrigin(originOf(t.name)) {
		if x.Pattern == r.Pattern {
			own++
		}
	}
	m.names.mu.Lock()
	defer m.names.mu.Unlock()
	return m.names.rows[r.Pattern] <= own
}

func (l *link) handleExpose(f *Frame, c *command) (Status, []byte) {
	return l.propagated(f, c, l.m.expose, "not exposed")
}

func (l *link) handleUnexpose(f *Frame, c *command) (Status, []byte) {
	return l.propagated(f, c, l.m.unexpose, string(f.Name)+": not exposed")
}

// handleNews takes what a router of our kind tells of itself and of others.
func (l *link) handleNews(_ *Frame, c *command) (Status, []byte) {
	t := l.twin.Load()
	if c.Kin == 0 || !t.named || !t.relays.Load() {
		return StatusUnknownCommand, nil
	}
	l.m.kin.up(t, c.Kin) // where its news come before its answer to our setup
	l.m.kin.hear(t, newsOf(c.News))
	return StatusOK, nil
}

func (l *link) handleSetup(_ *Frame, c *command) (Status, []byte) {
	t := l.twin.Load()
	if c.Kin != 0 && !l.m.o.Server && t.named && t.relays.Load() {
		answer := appendWide(appendText([]byte{majorMap<<5 | 1}, newsCommand), l.m.mark)
		if l.m.lets(t, c.Door) {
			answer[0]++
			answer = appendBytes(appendText(answer, "amqp"), c.Door)
		}
		l.m.kin.up(t, c.Kin)
		t.setReactive(true)
		t.flush(l)
		return StatusOK, answer
	}
	ok := l.m.setup(t, c.Exposers, c.Subscribers)
	t.setReactive(true)
	t.flush(l)
	return done(ok, "the rows cannot be written")
}

func (l *link) handleReactive(_ *Frame, c *command) (Status, []byte) {
	t := l.twin.Load()
	switch {
	case c.Status != nil && !*c.Status:
		t.setReactive(false)
	case c.LookBack == nil: // rembus.python says no more than that: it gets what its subscriptions want
		l.m.react(t, math.Inf(1))
	default:
		l.m.react(t, *c.LookBack)
	}
	t.flush(l)
	return StatusOK, nil
}

// private does a command of the table of private topics.
func (l *link) private(f *Frame, do func(by, topic string) bool) (Status, []byte) {
	topic := string(f.Name)
	if bad := badName(topic); bad != "" {
		return StatusError, appendText(nil, "bad topic: "+bad)
	}
	return done(do(l.login.name, topic), "not done")
}

func (l *link) handlePrivateTopic(f *Frame, _ *command) (Status, []byte) {
	return l.private(f, l.m.privateTopic)
}

func (l *link) handlePublicTopic(f *Frame, _ *command) (Status, []byte) {
	return l.private(f, l.m.publicTopic)
}

// allow does a command that names who may use a topic.
func (l *link) allow(f *Frame, c *command, do func(by, topic, name string) bool) (Status, []byte) {
	if badName(c.CID) != "" {
		return StatusError, nil
	}
	return l.private(f, func(by, topic string) bool { return do(by, topic, c.CID) })
}

func (l *link) handleAuthorize(f *Frame, c *command) (Status, []byte) {
	return l.allow(f, c, l.m.authorize)
}

func (l *link) handleUnauthorize(f *Frame, c *command) (Status, []byte) {
	return l.allow(f, c, l.m.unauthorize)
}

func (l *link) handlePrivateTopicsConfig(*Frame, *command) (Status, []byte) {
	return StatusOK, l.m.privateTopics()
}

func (l *link) handleBrokerConfig(*Frame, *command) (Status, []byte) {
	return StatusOK, l.m.config()
}

// handleLoadConfig takes admins and tenants as they are configured now. Private topics are a table, kept with every change.
func (l *link) handleLoadConfig(*Frame, *command) (Status, []byte) {
	if l.m.o.People == nil {
		return StatusOK, nil
	}
	admins, tenants, err := l.m.o.People()
	if err != nil {
		l.m.o.Log.Error("the configuration cannot be read again", "by", l.login.name, "error", err)
		return StatusError, appendText(nil, "the configuration cannot be read")
	}
	l.m.SetPeople(admins, tenants)
	return StatusOK, nil
}

func (l *link) handleSaveConfig(*Frame, *command) (Status, []byte) { return StatusOK, nil }

// handleShutdown ends the listeners of the mesh and its connections; the process only where that is allowed.
func (l *link) handleShutdown(*Frame, *command) (Status, []byte) {
	l.m.o.Log.Warn("shutdown was asked for", "by", l.login.name, "from", l.from)
	l.ending = true
	l.m.shutdown(l)
	return StatusOK, nil
}

func (l *link) handleEnableDebug(*Frame, *command) (Status, []byte)  { return l.debug(true) }
func (l *link) handleDisableDebug(*Frame, *command) (Status, []byte) { return l.debug(false) }

func (l *link) debug(on bool) (Status, []byte) {
	if l.m.o.Debug != nil {
		l.m.o.Debug(on)
	}
	return StatusOK, nil
}

// shutdown ends listeners and connections but by, which ends behind its answer.
func (m *Mesh) shutdown(by *link) {
	m.stopListening()
	m.mu.Lock()
	m.stopping = true
	for l := range m.links {
		if l != by {
			defer l.t.close(goingAway, "the router's mesh is shut down")
		}
	}
	m.mu.Unlock()
	if m.o.AllowShutdown && m.o.Shutdown != nil {
		m.o.Shutdown()
	}
}

// name binds a connection to the twin of the name that it has said. reason says why not.
func (m *Mesh) name(l *link, meta []byte) (reason string) {
	t, old, reason := m.bind(l, isRouterMeta(meta))
	if reason != "" {
		return reason
	}
	m.withdraw(old)
	m.arrivedRows(t)
	return ""
}

func (m *Mesh) bind(l *link, router bool) (t, old *twin, reason string) {
	name := l.login.name
	m.mu.Lock()
	defer m.mu.Unlock()
	if t = m.twins[name]; t == nil {
		t = newTwin(m, name)
		m.loadAcks(t)
		m.twins[name] = t
	}
	if t.open.Load() {
		if !m.o.Overwrite {
			return nil, nil, "already connected"
		}
		if other := t.current(); other != nil {
			defer other.t.close(goingAway, "the name has connected again")
		}
	}
	old = l.twin.Load()
	delete(m.twins, old.name)
	old.detach(l)
	t.attach(l, router, router)
	l.use(t)
	return t, old, ""
}

func (t *twin) current() *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.link
}

// arrived tells of a component that has a name now.
func (m *Mesh) arrived(t *twin, l *link) {
	m.o.Log.Info("a component has connected", "component", t.name, "from", l.from)
	if t.named {
		l.inform("connection_up", t)
	}
}

// left does what is to be done when a connection has ended and its twin has no other.
func (m *Mesh) left(t *twin, l *link) {
	m.leaves(t)
	m.kin.down(t)
	if !t.named {
		m.withdraw(t)
		t.giveUp()
	} else {
		m.saveAcks(t)
		if l.dialled == nil { // else it is a router, of which run tells
			m.o.Log.Info("a component has gone", "component", t.name, "from", l.from)
		}
	}
	l.inform("connection_down", t)
}

// inform publishes that a component came or went, as if it had said so itself.
func (l *link) inform(event string, t *twin) {
	data := appendText(appendText([]byte{majorArray<<5 | 1, majorMap<<5 | 2}, "event"), event)
	l.say(t, "component_info", appendText(appendText(data, "cid"), t.name))
}
