// A replacement of etcd in the rig: it takes the command line that tests/control-plane/run.sh has for
// etcd, and serves the port from kine on SQLite, with k3s's settings of the database. On the same
// port it serves etcd's JSON API, which kine lacks and by which the chaos test reads its chronicle.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/k3s-io/kine/pkg/app"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
)

// What every HTTP/2 connection, and so every gRPC client, begins with.
const preface = "PRI * HTTP/2.0"

func main() {
	var data, address string
	for _, flag := range os.Args[1:] {
		if value, ok := strings.CutPrefix(flag, "--data-dir="); ok {
			data = value
		} else if value, ok := strings.CutPrefix(flag, "--listen-client-urls=http://"); ok {
			address = value
		}
	}
	must(os.MkdirAll(data, 0o700))
	// A relative path keeps the name of a socket short enough, wherever the data are.
	must(os.Chdir(data))
	socket := fmt.Sprintf("kine-%d.sock", os.Getpid())
	options := "_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate"
	go func() {
		must(app.New().Run([]string{"kine", "--metrics-bind-address=0",
			"--listen-address=unix://" + socket, "--endpoint=sqlite://./state.db?" + options}))
	}()
	for {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}

	json := make(requests)
	go func() { must(http.Serve(json, gateway("unix:"+filepath.Join(".", socket)))) }()
	listener, err := net.Listen("tcp", address)
	must(err)
	// run.sh waits for the message that etcd logs when it serves.
	log.Printf(`"serving client traffic" on %s`, address)
	for {
		conn, err := listener.Accept()
		must(err)
		go serve(conn, socket, json)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// serve passes the bytes of a gRPC client to kine, and every other connection to the JSON API.
func serve(conn net.Conn, socket string, json requests) {
	reader := bufio.NewReader(conn)
	if begin, _ := reader.Peek(len(preface)); string(begin) != preface {
		json <- peeked{conn, reader}
		return
	}
	defer conn.Close()
	kine, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer kine.Close()
	go func() {
		io.Copy(kine, reader)
		kine.Close()
	}()
	io.Copy(conn, kine)
}

// gateway is etcd's own translation of JSON to gRPC.
func gateway(target string) http.Handler {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)
	// As etcd has it: names as in the protocol, and numbers of 64 bits as text.
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard,
		&runtime.HTTPBodyMarshaler{Marshaler: &runtime.JSONPb{
			MarshalOptions: protojson.MarshalOptions{UseProtoNames: true},
		}}))
	must(gw.RegisterKVHandler(context.Background(), mux, conn))
	must(gw.RegisterWatchHandler(context.Background(), mux, conn))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v3/watch" {
			r.Body = io.NopCloser(io.MultiReader(r.Body, untilDone{r.Context()}))
		}
		mux.ServeHTTP(w, r)
	})
}

// untilDone is a reader without data that ends with the request. kine ends a watch with the
// requests for watches; etcd does not.
type untilDone struct{ context.Context }

func (it untilDone) Read([]byte) (int, error) {
	<-it.Done()
	return 0, io.EOF
}

// peeked is a connection of which the first bytes have been read ahead.
type peeked struct {
	net.Conn
	reader *bufio.Reader
}

func (it peeked) Read(into []byte) (int, error) { return it.reader.Read(into) }

// requests is a listener whose connections come from another one.
type requests chan peeked

func (it requests) Accept() (net.Conn, error) { return <-it, nil }
func (it requests) Close() error              { return nil }
func (it requests) Addr() net.Addr            { return &net.UnixAddr{} }
