package wire

func PeekDescriptor(body []byte) (code uint64, rest []byte, err error)    { panic("stub") }
func AppendTransferHeader(dst []byte, channel uint16, t *Transfer) []byte { panic("stub") }
func AppendTransferFrame(dst []byte, channel uint16, t *Transfer, payload []byte) []byte {
	panic("stub")
}
func ParseValue(b []byte, lim *Limits) (v any, rest []byte, err error) { panic("stub") }
func AppendValue(dst []byte, v any) ([]byte, error)                    { panic("stub") }
func SkipValue(b []byte) (rest []byte, err error)                      { panic("stub") }

type StateKind uint8

const (
	StateNone StateKind = iota
	Received
	Accepted
	Rejected
	Released
	Modified
	Declared
	Transactional
	Unknown
)

type State struct {
	Kind                              StateKind
	Error                             *Error
	DeliveryFailed, UndeliverableHere bool
	Annotations                       Map
	SectionNumber                     uint32
	SectionOffset                     uint64
	TxnID, Outcome                    []byte
}

func PeekState(raw []byte) StateKind      { panic("stub") }
func (s *State) Parse(raw []byte) error   { panic("stub") }
func (s *State) Append(dst []byte) []byte { panic("stub") }

type Span struct{ Start, End int }
type Sections struct {
	Header, DeliveryAnnotations, MessageAnnotations, Properties, ApplicationProperties, Body, Footer Span
	Bare                                                                                             int
	To                                                                                               Span
	HasTo                                                                                            bool
	HeadComplete                                                                                     bool
}

func (p Span) Of(payload []byte) []byte                                            { return payload[p.Start:p.End] }
func ScanMessage(payload []byte, s *Sections) error                                { panic("stub") }
func ScanHead(payload []byte, s *Sections) error                                   { panic("stub") }
func (s *Sections) ToText(payload []byte) []byte                                   { panic("stub") }
func LookupAnnotation(section []byte, key string) (raw []byte, ok bool, err error) { panic("stub") }
func AppendMapWithEntry(dst, section []byte, code uint64, key string, raw []byte) ([]byte, error) {
	panic("stub")
}
func ApplicationProperty(section []byte, key string) (text string, ok bool, err error) { panic("stub") }
func StandardProperty(section []byte, name string) (text string, ok bool, err error)   { panic("stub") }

type Header struct {
	Durable, HasDurable bool
	Priority            uint8
	HasPriority         bool
	TTL                 uint32
	HasTTL              bool
	FirstAcquirer       bool
	DeliveryCount       uint32
}

func (h *Header) Parse(section []byte) (rest []byte, err error) { panic("stub") }
func (h *Header) Append(dst []byte) []byte                      { panic("stub") }

type Properties struct {
	MessageID                    any
	UserID                       []byte
	To                           string
	HasTo                        bool
	Subject                      string
	HasSubject                   bool
	ReplyTo                      string
	HasReplyTo                   bool
	CorrelationID                any
	ContentType, ContentEncoding Symbol
	AbsoluteExpiryTime           Timestamp
	HasAbsoluteExpiryTime        bool
	CreationTime                 Timestamp
	HasCreationTime              bool
	GroupID                      string
	HasGroupID                   bool
	GroupSequence                uint32
	HasGroupSequence             bool
	ReplyToGroupID               string
	HasReplyToGroupID            bool
}

func (p *Properties) Parse(section []byte) (rest []byte, err error) { panic("stub") }
func (p *Properties) Append(dst []byte) []byte                      { panic("stub") }

type Message struct {
	Header                                  *Header
	DeliveryAnnotations, MessageAnnotations Map
	Properties                              *Properties
	ApplicationProperties                   Map
	Data                                    [][]byte
	Sequence                                []List
	Value                                   any
	HasValue                                bool
	Footer                                  Map
}

func (m *Message) Parse(payload []byte) error                        { panic("stub") }
func (m *Message) Append(dst []byte) ([]byte, error)                 { panic("stub") }
func (p *Open) Parse(body []byte) (rest []byte, err error)           { panic("stub") }
func (p *Open) Append(dst []byte) []byte                             { panic("stub") }
func (p *Begin) Parse(body []byte) (rest []byte, err error)          { panic("stub") }
func (p *Begin) Append(dst []byte) []byte                            { panic("stub") }
func (p *Attach) Parse(body []byte) (rest []byte, err error)         { panic("stub") }
func (p *Attach) Append(dst []byte) []byte                           { panic("stub") }
func (p *Flow) Parse(body []byte) (rest []byte, err error)           { panic("stub") }
func (p *Flow) Append(dst []byte) []byte                             { panic("stub") }
func (p *Transfer) Parse(body []byte) (rest []byte, err error)       { panic("stub") }
func (p *Transfer) Append(dst []byte) []byte                         { panic("stub") }
func (p *Disposition) Parse(body []byte) (rest []byte, err error)    { panic("stub") }
func (p *Disposition) Append(dst []byte) []byte                      { panic("stub") }
func (p *Detach) Parse(body []byte) (rest []byte, err error)         { panic("stub") }
func (p *Detach) Append(dst []byte) []byte                           { panic("stub") }
func (p *End) Parse(body []byte) (rest []byte, err error)            { panic("stub") }
func (p *End) Append(dst []byte) []byte                              { panic("stub") }
func (p *Close) Parse(body []byte) (rest []byte, err error)          { panic("stub") }
func (p *Close) Append(dst []byte) []byte                            { panic("stub") }
func (p *Error) Parse(body []byte) (rest []byte, err error)          { panic("stub") }
func (p *Error) Append(dst []byte) []byte                            { panic("stub") }
func (p *Source) Parse(body []byte) (rest []byte, err error)         { panic("stub") }
func (p *Source) Append(dst []byte) []byte                           { panic("stub") }
func (p *Target) Parse(body []byte) (rest []byte, err error)         { panic("stub") }
func (p *Target) Append(dst []byte) []byte                           { panic("stub") }
func (p *SASLMechanisms) Parse(body []byte) (rest []byte, err error) { panic("stub") }
func (p *SASLMechanisms) Append(dst []byte) []byte                   { panic("stub") }
func (p *SASLInit) Parse(body []byte) (rest []byte, err error)       { panic("stub") }
func (p *SASLInit) Append(dst []byte) []byte                         { panic("stub") }
func (p *SASLChallenge) Parse(body []byte) (rest []byte, err error)  { panic("stub") }
func (p *SASLChallenge) Append(dst []byte) []byte                    { panic("stub") }
func (p *SASLResponse) Parse(body []byte) (rest []byte, err error)   { panic("stub") }
func (p *SASLResponse) Append(dst []byte) []byte                     { panic("stub") }
func (p *SASLOutcome) Parse(body []byte) (rest []byte, err error)    { panic("stub") }
func (p *SASLOutcome) Append(dst []byte) []byte                      { panic("stub") }
