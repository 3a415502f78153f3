package sample

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"replicaset-controller/devserver"
)

// The server of all tests in this package.
var cluster *rest.Config

func TestMain(m *testing.M) {
	server, err := devserver.Start()
	if err == nil {
		cluster, err = clientcmd.RESTConfigFromKubeConfig(server.Kubeconfig)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	server.Stop()
	// A second one, of a clean-up, returns at once.
	server.Stop()
	os.Exit(code)
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
