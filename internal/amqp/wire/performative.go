package wire

// Role is the role of a link's end: true for the receiver (AMQP 1.0 part 2, 2.8.1).
type Role bool

// The two roles.
const (
	RoleSender   Role = false
	RoleReceiver Role = true
)

func (r Role) String() string {
	if r == RoleReceiver {
		return "receiver"
	}
	return "sender"
}

// Open negotiates a connection (AMQP 1.0 part 2, 2.7.1).
type Open struct {
	ContainerID         string
	Hostname            string
	MaxFrameSize        uint32 // bytes; 4294967295 if absent, and Append takes 0 for absent
	ChannelMax          uint16 // 65535 if absent
	IdleTimeout         uint32 // milliseconds; 0 is none
	OutgoingLocales     []Symbol
	IncomingLocales     []Symbol
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

// Begin begins a session on a channel (AMQP 1.0 part 2, 2.7.2).
type Begin struct {
	RemoteChannel       uint16 // where HasRemoteChannel: this answers a begin on that channel
	HasRemoteChannel    bool
	NextOutgoingID      uint32
	IncomingWindow      uint32 // frames
	OutgoingWindow      uint32 // frames
	HandleMax           uint32 // 4294967295 if absent
	OfferedCapabilities []Symbol
	DesiredCapabilities []Symbol
	Properties          Map
}

// Attach attaches a link to a session (AMQP 1.0 part 2, 2.7.3).
type Attach struct {
	Name                    string
	Handle                  uint32
	Role                    Role
	SndSettleMode           uint8 // SenderMixed if absent
	RcvSettleMode           uint8 // ReceiverFirst if absent
	Source                  *Source
	Target                  *Target
	Coordinator             bool   // the target is a transaction coordinator (part 4, 4.5.1); Target is nil
	Unsettled               []byte // encoded map, a copy; nil if absent
	IncompleteUnsettled     bool
	InitialDeliveryCount    uint32
	HasInitialDeliveryCount bool   // Append writes it for a sender in any case: it is mandatory there
	MaxMessageSize          uint64 // bytes; 0 is no limit
	OfferedCapabilities     []Symbol
	DesiredCapabilities     []Symbol
	Properties              Map
}

// Source is where a link takes messages from (AMQP 1.0 part 3, 3.5.3).
type Source struct {
	Address               string
	HasAddress            bool
	Durable               uint32 // 0 none, 1 configuration, 2 unsettled state
	ExpiryPolicy          Symbol // ExpireSessionEnd if absent, and Append takes "" for absent
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Map
	DistributionMode      Symbol
	Filter                Map
	DefaultOutcome        []byte // encoded, a copy; nil if absent
	Outcomes              []Symbol
	Capabilities          []Symbol
}

// Target is where a link puts messages (AMQP 1.0 part 3, 3.5.4).
type Target struct {
	Address               string
	HasAddress            bool
	Durable               uint32 // 0 none, 1 configuration, 2 unsettled state
	ExpiryPolicy          Symbol // ExpireSessionEnd if absent, and Append takes "" for absent
	Timeout               uint32 // seconds
	Dynamic               bool
	DynamicNodeProperties Map
	Capabilities          []Symbol
}

// Flow tells the state of a session, and of a link where HasHandle (AMQP 1.0 part 2, 2.7.4).
type Flow struct {
	NextIncomingID    uint32
	HasNextIncomingID bool
	IncomingWindow    uint32 // frames
	NextOutgoingID    uint32
	OutgoingWindow    uint32 // frames
	Handle            uint32
	HasHandle         bool
	DeliveryCount     uint32
	HasDeliveryCount  bool
	LinkCredit        uint32 // messages
	HasLinkCredit     bool
	Available         uint32 // messages
	HasAvailable      bool
	Drain             bool
	Echo              bool
	Properties        Map
}

// Transfer begins or continues a delivery; the payload follows it in the frame (AMQP 1.0 part 2, 2.7.5).
type Transfer struct {
	Handle           uint32
	DeliveryID       uint32
	HasDeliveryID    bool
	Tag              []byte // Parse: aliases the input
	HasTag           bool
	MessageFormat    uint32
	HasMessageFormat bool
	Settled          bool
	HasSettled       bool
	More             bool
	RcvSettleMode    uint8
	HasRcvSettleMode bool
	State            []byte // encoded delivery state, nil if absent; Parse: aliases the input
	Resume           bool
	Aborted          bool
	Batchable        bool
}

// Disposition tells the state of deliveries First to Last (AMQP 1.0 part 2, 2.7.6).
type Disposition struct {
	Role      Role
	First     uint32
	Last      uint32 // First if absent
	Settled   bool
	State     []byte // encoded delivery state, nil if absent; Parse: aliases the input
	Batchable bool
}

// Detach detaches a link (AMQP 1.0 part 2, 2.7.7).
type Detach struct {
	Handle uint32
	Closed bool
	Error  *Error
}

// End ends a session (AMQP 1.0 part 2, 2.7.8).
type End struct{ Error *Error }

// Close closes a connection (AMQP 1.0 part 2, 2.7.9).
type Close struct{ Error *Error }

// SASLMechanisms is the server's offer (AMQP 1.0 part 5, 5.3.3.1).
type SASLMechanisms struct{ Mechanisms []Symbol }

// SASLInit is the client's choice (AMQP 1.0 part 5, 5.3.3.2).
type SASLInit struct {
	Mechanism          Symbol
	InitialResponse    []byte
	HasInitialResponse bool
	Hostname           string
}

// SASLChallenge asks the client (AMQP 1.0 part 5, 5.3.3.3).
type SASLChallenge struct{ Challenge []byte }

// SASLResponse answers a challenge (AMQP 1.0 part 5, 5.3.3.4).
type SASLResponse struct{ Response []byte }

// SASLOutcome ends the exchange (AMQP 1.0 part 5, 5.3.3.5).
type SASLOutcome struct {
	Code           uint8 // SASLOK or what went wrong
	AdditionalData []byte
}
