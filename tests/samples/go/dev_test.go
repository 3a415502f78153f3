package sample

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The server of all tests in this package.
var cluster *rest.Config

func TestMain(m *testing.M) {
	config, stop, err := startDev()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cluster = config
	code := m.Run()
	stop()
	os.Exit(code)
}

// startDev starts an API server with pods. The returned function stops it.
func startDev() (*rest.Config, func(), error) {
	binary := os.Getenv("REPLICASET_CONTROLLER")
	if binary == "" {
		binary = "replicaset-controller"
	}
	folder, err := os.MkdirTemp("", "dev")
	if err != nil {
		return nil, nil, err
	}
	kubeconfig := filepath.Join(folder, "kubeconfig")
	command := exec.Command(binary, "dev", "--port=0", "--pod-ready-after=0s",
		"--write-kubeconfig="+kubeconfig)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return nil, nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	stop := func() {
		command.Process.Signal(syscall.SIGTERM)
		<-exited
		os.RemoveAll(folder)
	}
	// The file appears when the server answers.
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if config, err := clientcmd.BuildConfigFromFlags("", kubeconfig); err == nil {
			// By default client-go sends the built-in kinds as protobuf, which this server reads of a
			// few kinds only.
			config.ContentType = "application/json"
			return config, stop, nil
		}
		select {
		case err := <-exited:
			return nil, nil, fmt.Errorf("%v exited: %w", command.Args, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	stop()
	return nil, nil, fmt.Errorf("%s was not written", kubeconfig)
}

// newNamespace creates a namespace for one test.
func newNamespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	created, err := client.CoreV1().Namespaces().Create(
		context.Background(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created.Name
}
