package components

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	v1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// dialTool connects to a broker as tools do.
func dialTool(t *testing.T) (context.Context, *grpc.ClientConn) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+startBroker(t, Options{}).grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(func() { cancel(); conn.Close() })
	return ctx, conn
}

// Tools that know nothing of components find the service and its messages, and read with them what the broker writes.
func TestReflection(t *testing.T) {
	ctx, conn := dialTool(t)
	stream, err := v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(q *v1.ServerReflectionRequest) *v1.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
		a, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if a.OriginalRequest.String() != q.String() || a.ValidHost != q.Host {
			t.Errorf("got an answer to %v of host %s, want %v", a.OriginalRequest, a.ValidHost, q)
		}
		return a
	}
	symbol := func(name string) *v1.ServerReflectionResponse {
		return ask(&v1.ServerReflectionRequest{Host: "h", MessageRequest: &v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
	}

	services := ask(&v1.ServerReflectionRequest{MessageRequest: &v1.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService()
	if len(services) != 1 || services[0].Name != "kubefox.proto.v1.Broker" {
		t.Errorf("got services %v", services)
	}
	var file []byte
	for _, name := range []string{"", ".Subscribe"} {
		got := symbol("kubefox.proto.v1.Broker" + name).GetFileDescriptorResponse().GetFileDescriptorProto()
		if len(got) != 1 {
			t.Fatalf("%s: got %d files", name, len(got))
		}
		file = got[0]
	}
	for _, name := range []string{"kubefox.proto.v1.Event.ParamsEntry", "kubefox.proto.v1.Category", "kubefox.proto.v1.Event.ttl"} {
		if got := symbol(name).GetFileDescriptorResponse().GetFileDescriptorProto(); len(got) != 1 {
			t.Errorf("%s is in %d files", name, len(got))
		}
	}
	named := ask(&v1.ServerReflectionRequest{MessageRequest: &v1.ServerReflectionRequest_FileByFilename{FileByFilename: "broker.proto"}})
	if got := named.GetFileDescriptorResponse().GetFileDescriptorProto(); len(got) != 1 || !slices.Equal(got[0], file) {
		t.Error("its name gives another file")
	}
	if e := symbol("kubefox.proto.v1.Nothing").GetErrorResponse(); e.GetErrorCode() != 5 {
		t.Errorf("nothing is found: %v", e)
	}
	if e := ask(&v1.ServerReflectionRequest{MessageRequest: &v1.ServerReflectionRequest_AllExtensionNumbersOfType{AllExtensionNumbersOfType: "x"}}).GetErrorResponse(); e.GetErrorCode() != 5 {
		t.Errorf("an extension is found: %v", e)
	}
	stream.CloseSend()
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("got %v at the end", err)
	}
}

// Tools of before ask by an older name, with the same messages; who asks too much at once is told so.
func TestReflectionOfBefore(t *testing.T) {
	ctx, conn := dialTool(t)
	ask := func(q *v1.ServerReflectionRequest) (*v1.ServerReflectionResponse, error) {
		t.Helper()
		desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
		stream, err := conn.NewStream(ctx, desc, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(q); err != nil {
			t.Fatal(err)
		}
		stream.CloseSend() // the answer comes all the same
		a := new(v1.ServerReflectionResponse)
		return a, stream.RecvMsg(a)
	}
	a, err := ask(&v1.ServerReflectionRequest{MessageRequest: &v1.ServerReflectionRequest_ListServices{}})
	if err != nil || len(a.GetListServicesResponse().GetService()) != 1 {
		t.Errorf("got %v, %v", a, err)
	}
	if _, err := ask(&v1.ServerReflectionRequest{Host: string(make([]byte, 5000))}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a long question: %v", err)
	}
}
