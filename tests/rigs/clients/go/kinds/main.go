// Command kinds writes one object with all fields of each kind that the dev server at the address
// in its argument serves, once as protobuf, client-go's default, and once as JSON: create, update,
// update of the status, delete. What comes back must be the same. SEED varies the objects.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/randfill"
)

const (
	protobuf = "application/vnd.kubernetes.protobuf"
	asJSON   = "application/json"
)

func main() {
	must(apiextensionsv1.AddToScheme(scheme.Scheme))
	config := &rest.Config{Host: os.Args[1], QPS: -1, WarningHandler: rest.NoWarnings{}}
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	must(err)
	seed, _ := strconv.ParseInt(os.Getenv("SEED"), 10, 64)
	passed, failed := 0, 0
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		must(err)
		for _, served := range list.APIResources {
			if !slices.Contains(served.Verbs, "delete") || !scheme.Scheme.Recognizes(version.WithKind(served.Kind)) {
				continue
			}
			why := check(config, version, served, seed)
			if why == "" {
				passed++
				continue
			}
			failed++
			fmt.Printf("%s %s: %s\n", list.GroupVersion, served.Kind, why)
		}
	}
	fmt.Printf("%d kinds are the same as protobuf and as JSON, %d are not\n", passed, failed)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// Writes the object as protobuf and as JSON, and says what differs.
func check(config *rest.Config, version schema.GroupVersion, served metav1.APIResource, seed int64) string {
	var results [2][]string
	for n, media := range []string{protobuf, asJSON} {
		own := rest.CopyConfig(config)
		own.GroupVersion, own.ContentType, own.AcceptContentTypes = &version, media, protobuf+","+asJSON
		own.APIPath, own.NegotiatedSerializer = "/apis", scheme.Codecs.WithoutConversion()
		if version.Group == "" {
			own.APIPath = "/api"
		}
		client, err := rest.RESTClientFor(own)
		must(err)
		results[n] = write(client, version.WithKind(served.Kind), served, seed)
	}
	for n, name := range []string{"create", "update", "update of the status", "delete"} {
		if as := results[0][n]; as != results[1][n] {
			return name + " differs: " + difference(as, results[1][n])
		} else if strings.HasPrefix(as, "error") {
			return name + ": " + as
		}
	}
	return ""
}

// The surroundings of the first difference.
func difference(as, json string) string {
	at := 0
	for at < len(as) && at < len(json) && as[at] == json[at] {
		at++
	}
	part := func(text string) string { return text[max(0, at-60):min(len(text), at+60)] }
	return fmt.Sprintf("\n  protobuf …%s…\n  JSON     …%s…", part(as), part(json))
}

// The object after each step, or the error.
func write(client *rest.RESTClient, kind schema.GroupVersionKind, served metav1.APIResource, seed int64) []string {
	random := rand.New(rand.NewSource(seed))
	fill := filler(random)
	object := func() runtime.Object {
		made, err := scheme.Scheme.New(kind)
		must(err)
		fill.Fill(made)
		complete(made)
		made.GetObjectKind().SetGroupVersionKind(kind)
		return made
	}
	to := func(request *rest.Request) *rest.Request {
		return request.NamespaceIfScoped("default", served.Namespaced).Resource(served.Name)
	}
	result := func(result rest.Result) string {
		raw, err := result.Raw()
		if err != nil {
			return "error: " + err.Error() + " " + string(raw)
		}
		return comparable(raw)
	}
	name := func(object runtime.Object) string { return object.(metav1.Object).GetName() }
	ctx := context.Background()
	created := object()
	steps := []string{result(to(client.Post()).Body(created).Do(ctx))}
	updated := object()
	keep(created, updated)
	read := client.Get
	version := func(object runtime.Object) {
		current := &metav1.PartialObjectMetadata{}
		raw, _ := to(read()).Name(name(object)).Do(ctx).Raw()
		_ = json.Unmarshal(raw, current)
		object.(metav1.Object).SetResourceVersion(current.ResourceVersion)
	}
	version(updated)
	steps = append(steps, result(to(client.Put()).Name(name(updated)).Body(updated).Do(ctx)))
	status := ""
	if reflect.ValueOf(created).Elem().FieldByName("Status").IsValid() && hasStatus(kind.Kind) {
		// A simulated controller may write the status between the two requests.
		for status == "" || strings.Contains(status, "please apply your changes") {
			version(updated)
			put := to(client.Put()).Name(name(updated)).SubResource("status")
			status = result(put.Body(updated).Do(ctx))
		}
	}
	steps = append(steps, status)
	now := int64(0)
	policy := metav1.DeletePropagationBackground
	options := &metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &policy}
	deleted := result(to(client.Delete()).Name(name(created)).Body(options).Do(ctx))
	if !strings.HasPrefix(deleted, "error") {
		deleted = "deleted"
	}
	for to(read()).Name(name(created)).Do(ctx).Error() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return append(steps, deleted)
}

func hasStatus(kind string) bool {
	return !slices.Contains([]string{"CSINode", "Namespace"}, kind)
}

// The JSON without what the server sets by chance.
func comparable(raw []byte) string {
	var object map[string]any
	must(json.Unmarshal(raw, &object))
	meta, _ := object["metadata"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		delete(meta, field)
	}
	dropNulls(object)
	if object["kind"] == "CustomResourceDefinition" {
		delete(object, "status")
	}
	text, err := json.Marshal(object)
	must(err)
	return string(text)
}

// Absent is null.
func dropNulls(value any) {
	switch it := value.(type) {
	case map[string]any:
		for name, member := range it {
			if dropNulls(member); member == nil {
				delete(it, name)
			}
		}
	case []any:
		for _, entry := range it {
			dropNulls(entry)
		}
	}
}

// Fills every field with something that the server may accept.
func filler(random *rand.Rand) *randfill.Filler {
	word := func() string {
		letters := make([]byte, 1+random.Intn(8))
		for n := range letters {
			letters[n] = byte('a' + random.Intn(26))
		}
		return string(letters)
	}
	when := func() time.Time { return time.Unix(random.Int63n(4e9), 0) }
	// Some zeros, for they are what the two encodings treat differently.
	return randfill.New().RandSource(random).NilChance(0.2).NumElements(1, 2).MaxDepth(16).Funcs(
		func(it *string, _ randfill.Continue) {
			if *it = ""; random.Intn(5) > 0 {
				*it = word()
			}
		},
		func(it *int32, _ randfill.Continue) { *it = int32(random.Intn(4)) * 7 },
		func(it *int64, _ randfill.Continue) { *it = int64(random.Intn(4)) * 9 },
		func(it *[]byte, _ randfill.Continue) { *it = []byte(word()) },
		func(it *float64, _ randfill.Continue) { *it = float64(random.Intn(9)) / 4 },
		func(it *metav1.Time, _ randfill.Continue) { it.Time = when() },
		func(it *metav1.MicroTime, _ randfill.Continue) {
			it.Time = when().Add(time.Duration(random.Intn(1e6)) * time.Microsecond)
		},
		func(it *resource.Quantity, _ randfill.Continue) {
			*it = resource.MustParse(strconv.Itoa(random.Intn(900)) + "Mi")
		},
		func(it *intstr.IntOrString, _ randfill.Continue) {
			if *it = intstr.FromInt32(int32(random.Intn(99))); random.Intn(2) > 0 {
				*it = intstr.FromString(word())
			}
		},
		func(it *runtime.RawExtension, _ randfill.Continue) {
			it.Raw = []byte(`{"` + word() + `":[1,"x",null,{"y":true}]}`)
		},
		func(it *apiextensionsv1.JSON, _ randfill.Continue) { it.Raw = []byte(`{"` + word() + `":1.5}`) },
		// Protobuf has no kind in nested objects.
		func(it *metav1.TypeMeta, _ randfill.Continue) { *it = metav1.TypeMeta{} },
		func(it *metav1.ObjectMeta, _ randfill.Continue) {
			it.Labels = map[string]string{word(): word(), word(): ""}
			it.Annotations = map[string]string{word(): "", word(): "any: text\n"}
		},
		func(it *apiextensionsv1.JSONSchemaProps, fill randfill.Continue) {
			fill.FillNoCustom(it)
			// One level of schemas has every kind of nested one.
			it.Type, it.Ref, it.Properties, it.AllOf, it.OneOf = "object", nil, nil, nil, nil
			it.AnyOf, it.Not, it.PatternProperties, it.Definitions = nil, nil, nil, nil
			it.AdditionalItems, it.Dependencies, it.Items, it.Default = nil, nil, nil, nil
			it.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}
			it.Properties = map[string]apiextensionsv1.JSONSchemaProps{
				"list": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{
					Schema: &apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: new(int64)},
				}},
			}
		},
	)
}

// Gives the object what the server asks of its kind.
func complete(object runtime.Object) {
	meta := object.(metav1.Object)
	meta.SetName("kinds-test")
	meta.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}})
	namespace := "default"
	pod := func(template *corev1.PodTemplateSpec) {
		containers(&template.Spec)
		template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	// The selector is that of the template.
	selected := func(selector **metav1.LabelSelector, template *corev1.PodTemplateSpec) {
		*selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
		template.Labels = map[string]string{"app": "x"}
		pod(template)
	}
	switch it := object.(type) {
	case *corev1.Pod:
		containers(&it.Spec)
		it.Spec.RestartPolicy = corev1.RestartPolicyAlways
		it.Spec.SchedulingGates = nil
	case *corev1.PodTemplate:
		containers(&it.Template.Spec)
	case *corev1.Event:
		it.InvolvedObject.Namespace = namespace
	case *eventsv1.Event:
		it.Regarding.Namespace = namespace
	case *batchv1.Job:
		manual := true
		it.Spec.ManualSelector = &manual
	case *corev1.ReplicationController:
		it.Spec.Template = &corev1.PodTemplateSpec{}
		it.Spec.Selector = map[string]string{"app": "x"}
		it.Spec.Template.Labels = it.Spec.Selector
		pod(it.Spec.Template)
		it.Status = corev1.ReplicationControllerStatus{Replicas: 3, ReadyReplicas: 0, ObservedGeneration: 1}
	case *coordinationv1.Lease:
		it.Spec.LeaseDurationSeconds = nil
	case *corev1.ResourceQuota:
		it.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("100")}
	case *appsv1.Deployment:
		selected(&it.Spec.Selector, &it.Spec.Template)
	case *appsv1.ReplicaSet:
		selected(&it.Spec.Selector, &it.Spec.Template)
		it.Status = appsv1.ReplicaSetStatus{Replicas: 3, ReadyReplicas: 0, ObservedGeneration: 1}
	case *appsv1.DaemonSet:
		selected(&it.Spec.Selector, &it.Spec.Template)
	case *appsv1.StatefulSet:
		selected(&it.Spec.Selector, &it.Spec.Template)
	case *apiextensionsv1.CustomResourceDefinition:
		meta.SetName("widgets.example.com")
		it.Spec.Group, it.Spec.Scope = "example.com", "Namespaced"
		it.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"}
		it.Spec.Conversion = nil
		version := apiextensionsv1.CustomResourceDefinitionVersion{}
		if len(it.Spec.Versions) > 0 {
			version = it.Spec.Versions[0]
		}
		version.Name, version.Storage, version.Subresources = "v1", true, nil
		it.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
	}
}

func containers(spec *corev1.PodSpec) {
	if len(spec.Containers) == 0 {
		spec.Containers = []corev1.Container{{}}
	}
	for n := range spec.Containers {
		it := &spec.Containers[n]
		it.Name, it.Image = fmt.Sprintf("c%d", n), "example.invalid/i:1"
		for p := range it.Ports {
			it.Ports[p].Protocol = corev1.ProtocolUDP
		}
	}
}

// Keeps what an update must not change.
func keep(old, updated runtime.Object) {
	switch it := updated.(type) {
	case *corev1.Pod:
		it.Spec = *old.(*corev1.Pod).Spec.DeepCopy()
		it.Spec.ActiveDeadlineSeconds = new(int64)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
