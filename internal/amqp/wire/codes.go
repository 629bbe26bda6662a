package wire

import "fmt"

// Format codes (AMQP 1.0 part 1, 1.2 and 1.6).
const (
	fmtDescribed  = 0x00
	fmtNull       = 0x40
	fmtTrue       = 0x41
	fmtFalse      = 0x42
	fmtUint0      = 0x43
	fmtUlong0     = 0x44
	fmtList0      = 0x45
	fmtUbyte      = 0x50
	fmtByte       = 0x51
	fmtSmallUint  = 0x52
	fmtSmallUlong = 0x53
	fmtSmallInt   = 0x54
	fmtSmallLong  = 0x55
	fmtBool       = 0x56
	fmtUshort     = 0x60
	fmtShort      = 0x61
	fmtUint       = 0x70
	fmtInt        = 0x71
	fmtFloat      = 0x72
	fmtChar       = 0x73
	fmtDecimal32  = 0x74
	fmtUlong      = 0x80
	fmtLong       = 0x81
	fmtDouble     = 0x82
	fmtTimestamp  = 0x83
	fmtDecimal64  = 0x84
	fmtDecimal128 = 0x94
	fmtUUID       = 0x98
	fmtBin8       = 0xa0
	fmtStr8       = 0xa1
	fmtSym8       = 0xa3
	fmtBin32      = 0xb0
	fmtStr32      = 0xb1
	fmtSym32      = 0xb3
	fmtList8      = 0xc0
	fmtMap8       = 0xc1
	fmtList32     = 0xd0
	fmtMap32      = 0xd1
	fmtArray8     = 0xe0
	fmtArray32    = 0xf0
)

// Descriptor codes of performatives and of what they hold (AMQP 1.0 part 2, 2.7 and 2.8; part 3, 3.4 and 3.5; part 4, 4.5).
const (
	CodeOpen        = 0x10
	CodeBegin       = 0x11
	CodeAttach      = 0x12
	CodeFlow        = 0x13
	CodeTransfer    = 0x14
	CodeDisposition = 0x15
	CodeDetach      = 0x16
	CodeEnd         = 0x17
	CodeClose       = 0x18
	CodeError       = 0x1d

	CodeReceived = 0x23
	CodeAccepted = 0x24
	CodeRejected = 0x25
	CodeReleased = 0x26
	CodeModified = 0x27

	CodeSource                    = 0x28
	CodeTarget                    = 0x29
	CodeDeleteOnClose             = 0x2b
	CodeDeleteOnNoLinks           = 0x2c
	CodeDeleteOnNoMessages        = 0x2d
	CodeDeleteOnNoLinksOrMessages = 0x2e

	CodeCoordinator   = 0x30
	CodeDeclare       = 0x31
	CodeDischarge     = 0x32
	CodeDeclared      = 0x33
	CodeTransactional = 0x34
)

// Descriptor codes of SASL frames (AMQP 1.0 part 5, 5.3.3).
const (
	CodeSASLMechanisms = 0x40
	CodeSASLInit       = 0x41
	CodeSASLChallenge  = 0x42
	CodeSASLResponse   = 0x43
	CodeSASLOutcome    = 0x44
)

// Descriptor codes of message sections (AMQP 1.0 part 3, 3.2).
const (
	CodeHeader                = 0x70
	CodeDeliveryAnnotations   = 0x71
	CodeMessageAnnotations    = 0x72
	CodeProperties            = 0x73
	CodeApplicationProperties = 0x74
	CodeData                  = 0x75
	CodeSequence              = 0x76
	CodeValue                 = 0x77
	CodeFooter                = 0x78
)

// symbolicCode gives the numeric form of a symbolic descriptor (AMQP 1.0 part 1, 1.5). It allocates nothing.
func symbolicCode(name []byte) (code uint64, ok bool) {
	switch string(name) {
	case "amqp:open:list":
		return CodeOpen, true
	case "amqp:begin:list":
		return CodeBegin, true
	case "amqp:attach:list":
		return CodeAttach, true
	case "amqp:flow:list":
		return CodeFlow, true
	case "amqp:transfer:list":
		return CodeTransfer, true
	case "amqp:disposition:list":
		return CodeDisposition, true
	case "amqp:detach:list":
		return CodeDetach, true
	case "amqp:end:list":
		return CodeEnd, true
	case "amqp:close:list":
		return CodeClose, true
	case "amqp:error:list":
		return CodeError, true
	case "amqp:received:list":
		return CodeReceived, true
	case "amqp:accepted:list":
		return CodeAccepted, true
	case "amqp:rejected:list":
		return CodeRejected, true
	case "amqp:released:list":
		return CodeReleased, true
	case "amqp:modified:list":
		return CodeModified, true
	case "amqp:source:list":
		return CodeSource, true
	case "amqp:target:list":
		return CodeTarget, true
	case "amqp:delete-on-close:list":
		return CodeDeleteOnClose, true
	case "amqp:delete-on-no-links:list":
		return CodeDeleteOnNoLinks, true
	case "amqp:delete-on-no-messages:list":
		return CodeDeleteOnNoMessages, true
	case "amqp:delete-on-no-links-or-messages:list":
		return CodeDeleteOnNoLinksOrMessages, true
	case "amqp:coordinator:list":
		return CodeCoordinator, true
	case "amqp:declare:list":
		return CodeDeclare, true
	case "amqp:discharge:list":
		return CodeDischarge, true
	case "amqp:declared:list":
		return CodeDeclared, true
	case "amqp:transactional-state:list":
		return CodeTransactional, true
	case "amqp:sasl-mechanisms:list":
		return CodeSASLMechanisms, true
	case "amqp:sasl-init:list":
		return CodeSASLInit, true
	case "amqp:sasl-challenge:list":
		return CodeSASLChallenge, true
	case "amqp:sasl-response:list":
		return CodeSASLResponse, true
	case "amqp:sasl-outcome:list":
		return CodeSASLOutcome, true
	case "amqp:header:list":
		return CodeHeader, true
	case "amqp:delivery-annotations:map":
		return CodeDeliveryAnnotations, true
	case "amqp:message-annotations:map":
		return CodeMessageAnnotations, true
	case "amqp:properties:list":
		return CodeProperties, true
	case "amqp:application-properties:map":
		return CodeApplicationProperties, true
	case "amqp:data:binary":
		return CodeData, true
	case "amqp:amqp-sequence:list":
		return CodeSequence, true
	case "amqp:amqp-value:*":
		return CodeValue, true
	case "amqp:footer:map":
		return CodeFooter, true
	}
	return 0, false
}

// Error conditions. They are untyped so that they serve as [Symbol] and as string.
const (
	// AMQP 1.0 part 2, 2.8.15.
	CondInternalError         = "amqp:internal-error"
	CondNotFound              = "amqp:not-found"
	CondUnauthorizedAccess    = "amqp:unauthorized-access"
	CondDecodeError           = "amqp:decode-error"
	CondResourceLimitExceeded = "amqp:resource-limit-exceeded"
	CondNotAllowed            = "amqp:not-allowed"
	CondInvalidField          = "amqp:invalid-field"
	CondNotImplemented        = "amqp:not-implemented"
	CondResourceLocked        = "amqp:resource-locked"
	CondPreconditionFailed    = "amqp:precondition-failed"
	CondResourceDeleted       = "amqp:resource-deleted"
	CondIllegalState          = "amqp:illegal-state"
	CondFrameSizeTooSmall     = "amqp:frame-size-too-small"

	// AMQP 1.0 part 2, 2.8.16.
	CondConnectionForced   = "amqp:connection:forced"
	CondFramingError       = "amqp:connection:framing-error"
	CondConnectionRedirect = "amqp:connection:redirect"

	// AMQP 1.0 part 2, 2.8.17.
	CondWindowViolation  = "amqp:session:window-violation"
	CondErrantLink       = "amqp:session:errant-link"
	CondHandleInUse      = "amqp:session:handle-in-use"
	CondUnattachedHandle = "amqp:session:unattached-handle"

	// AMQP 1.0 part 2, 2.8.18.
	CondDetachForced          = "amqp:link:detach-forced"
	CondTransferLimitExceeded = "amqp:link:transfer-limit-exceeded"
	CondMessageSizeExceeded   = "amqp:link:message-size-exceeded"
	CondLinkRedirect          = "amqp:link:redirect"
	CondStolen                = "amqp:link:stolen"

	// AMQP 1.0 part 4, 4.5.8.
	CondTxnUnknownID = "amqp:transaction:unknown-id"
	CondTxnRollback  = "amqp:transaction:rollback"
	CondTxnTimeout   = "amqp:transaction:timeout"
)

// Symbols of termini (AMQP 1.0 part 3, 3.5.5 to 3.5.7).
const (
	ExpireLinkDetach      = "link-detach"
	ExpireSessionEnd      = "session-end" // the default
	ExpireConnectionClose = "connection-close"
	ExpireNever           = "never"

	DistributionMove = "move"
	DistributionCopy = "copy"
)

// Settle modes (AMQP 1.0 part 2, 2.8.2 and 2.8.3).
const (
	SenderUnsettled = 0
	SenderSettled   = 1
	SenderMixed     = 2 // the default

	ReceiverFirst  = 0 // the default
	ReceiverSecond = 1
)

// Codes of a sasl-outcome (AMQP 1.0 part 5, 5.3.3.6).
const (
	SASLOK      = 0
	SASLAuth    = 1
	SASLSys     = 2
	SASLSysPerm = 3
	SASLSysTemp = 4
)

// ProtoHeader is what each side of a connection sends first (AMQP 1.0 part 2, 2.2).
type ProtoHeader [8]byte

// The protocol headers of AMQP 1.0, for plain AMQP, TLS (part 5, 5.2) and SASL (part 5, 5.3).
const (
	ProtoAMQP = "AMQP\x00\x01\x00\x00"
	ProtoTLS  = "AMQP\x02\x01\x00\x00"
	ProtoSASL = "AMQP\x03\x01\x00\x00"
)

// ParseProtoHeader takes the first eight bytes of b. An error says that they begin no AMQP protocol header; a header of
// another protocol id or version is not an error.
func ParseProtoHeader(b []byte) (h ProtoHeader, err error) {
	if n := copy(h[:], b); n < len(h) || string(h[:4]) != "AMQP" {
		return h, &DecodeError{What: "not an AMQP protocol header", Short: n < len(h) && string(b[:min(n, 4)]) == "AMQP"[:min(n, 4)]}
	}
	return h, nil
}

// Is tells whether h is the header proto, one of ProtoAMQP, ProtoTLS, ProtoSASL.
func (h ProtoHeader) Is(proto string) bool { return string(h[:]) == proto }

// String gives the header in words, such as "AMQP id 3 version 1.0.0".
func (h ProtoHeader) String() string {
	return fmt.Sprintf("%q id %d version %d.%d.%d", h[:4], h[4], h[5], h[6], h[7])
}
