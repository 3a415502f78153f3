// Package devserver starts the dev server of replicaset-controller: a Kubernetes API server for tests, in
// which pods come, run and fail. It depends on no client. README.md has an example.
package devserver

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Annotation is the prefix of the annotations that control how the nodes treat a pod, such as
// Annotation + "fate".
const Annotation = "dev.replicaset-controller/"

// Upper bound for a wait that would otherwise never end.
const patience = time.Minute

// Server is a running dev server.
type Server struct {
	// URL is its address: http://127.0.0.1:PORT.
	URL string
	// Kubeconfig is the content of a kubeconfig for it, and KubeconfigPath a file with this content.
	Kubeconfig     []byte
	KubeconfigPath string

	folder  string
	command *exec.Cmd
	// The server ends when this process does, since that closes the pipe.
	stdin  io.Closer
	said   *log
	exited chan error
}

// log is what the server prints, which is read while it is written.
type log struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *log) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(text)
}

// Binary returns the program that Start runs: $REPLICASET_CONTROLLER, or that of $PATH.
func Binary() string {
	if named := os.Getenv("REPLICASET_CONTROLLER"); named != "" {
		return named
	}
	return "replicaset-controller"
}

// Start starts a server on a free port. The arguments are further ones of `replicaset-controller dev`,
// such as --data=testdata.
func Start(arguments ...string) (*Server, error) {
	folder, err := os.MkdirTemp("", "dev-server-")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "kubeconfig")
	arguments = append([]string{"dev", "--port=0", "--pod-ready-after=0s", "--until-stdin-closes",
		"--write-kubeconfig=" + path}, arguments...)
	command := exec.Command(Binary(), arguments...)
	said := &log{}
	command.Stdout, command.Stderr = said, said
	server := &Server{KubeconfigPath: path, folder: folder, command: command, said: said,
		exited: make(chan error, 1)}
	server.stdin, err = command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		os.RemoveAll(folder)
		return nil, fmt.Errorf("%w: install the program, or name it in $REPLICASET_CONTROLLER", err)
	}
	go func() {
		server.exited <- command.Wait()
		close(server.exited)
	}()
	// The file appears when the server answers.
	for deadline := time.Now().Add(patience); ; {
		if server.Kubeconfig, err = os.ReadFile(path); err == nil {
			break
		}
		select {
		case err := <-server.exited:
			os.RemoveAll(folder)
			return nil, fmt.Errorf("%s: %v\n%s", strings.Join(command.Args, " "), err, server.Log())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			server.Stop()
			return nil, fmt.Errorf("%s did not answer within %s\n%s", strings.Join(command.Args, " "), patience,
				server.Log())
		}
	}
	if found := regexp.MustCompile(`server: "(.*)"`).FindSubmatch(server.Kubeconfig); found != nil {
		server.URL = string(found[1])
	}
	return server, nil
}

// Log returns what the server has printed.
func (s *Server) Log() string {
	s.said.mutex.Lock()
	defer s.said.mutex.Unlock()
	return s.said.text.String()
}

// Stop stops the server, and waits for its end.
func (s *Server) Stop() {
	s.command.Process.Signal(os.Interrupt)
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.command.Process.Kill()
		<-s.exited
	}
	os.RemoveAll(s.folder)
}
